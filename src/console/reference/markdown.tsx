/** @jsxImportSource hono/jsx */
import { raw } from "hono/html";
import { Marked, type Tokens } from "marked";

/* The CommonMark of the document as HTML. What looks like a tag is shown as text. */

const escapeHtml = (text: string): string =>
  text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");

export const slugOf = (title: string): string => title.toLowerCase().replaceAll(/[^a-z0-9]+/g, "-");

const marked = new Marked({
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escapeHtml(text),
    heading({ tokens, depth, text }: Tokens.Heading) {
      return `<h${depth} id="${slugOf(text)}">${this.parser.parseInline(tokens)}</h${depth}>`;
    },
    // Each cell has the name of its column, because on narrow screens a row is a card.
    table({ header, rows }: Tokens.Table) {
      const heads = header.map(({ tokens }) => `<th scope="col">${this.parser.parseInline(tokens)}</th>`).join("");
      const cellsOf = (row: Tokens.TableCell[]) =>
        row.map(({ tokens }, column) => {
          const label = escapeHtml((header[column]?.text ?? "").replaceAll("`", ""));
          return `<td data-label="${label}">${this.parser.parseInline(tokens)}</td>`;
        });
      const lines = rows.map((row) => `<tr>${cellsOf(row).join("")}</tr>`).join("");
      return `<table><thead><tr>${heads}</tr></thead><tbody>${lines}</tbody></table>`;
    },
  },
});

/** The titles of the sections of a text. */
export function sectionTitles(text: string): string[] {
  const headings = marked.lexer(text).filter((token): token is Tokens.Heading => token.type === "heading");
  return headings.filter(({ depth }) => depth === 2).map(({ text }) => text);
}

/** Paragraphs, lists, tables and code. In tables, names of operations become links to them. */
export function Block({ text, operations = [] }: { text: string; operations?: string[] }) {
  const names = new Set(operations);
  const html = marked
    .parse(text, { async: false })
    .replaceAll(/<td [^>]*>.*?<\/td>/gs, (cell) =>
      cell.replaceAll(/(?<![\w">])\w+(?![\w"])|(?<=>)\w+/g, (word) =>
        names.has(word) ? `<a href="#${word}">${word}</a>` : word,
      ),
    );
  return <>{raw(html)}</>;
}

export const Inline = ({ text }: { text: string }) => <>{raw(marked.parseInline(text, { async: false }))}</>;
