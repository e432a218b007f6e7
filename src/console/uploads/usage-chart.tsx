import { useId } from "preact/hooks";
import { type FileEvent, isFileEvent } from "../../client/index.ts";
import { client } from "../framework/session.ts";
import { useData, useEvents } from "../framework/store.ts";
import { Failure } from "../parts/failure.tsx";
import { countOf, formatBytes, LOCALE } from "../parts/format.ts";
import { Skeleton } from "../parts/page.tsx";
import { CHART_DAYS, type Day, dailyTotals, type Sized } from "./daily-totals.ts";

/** The event log is read page by page, so a busy team's chart covers its latest 1,000 uploads. */
const MAX_PAGES = 10;
const PAGE_EVENTS = 100;
/** The shape of the chart, in its own units. */
const [BAR_WIDTH, GAP, HEIGHT] = [6, 4, 60];

interface Uploads {
  uploads: Sized[];
  /** The oldest upload that was read, if there may be more. */
  since: string | undefined;
}

/** Without the year, so that the labels of the chart fit on a phone. */
const day = new Intl.DateTimeFormat(LOCALE, { month: "short", day: "numeric" });
const toSized = ({ _id, createdAt, data }: FileEvent): Sized => ({ _id, createdAt, size: data.size });
const isUpload = (event: Parameters<typeof isFileEvent>[0]): event is FileEvent =>
  isFileEvent(event) && event.type === "file.uploaded";

async function readUploads(signal: AbortSignal): Promise<Uploads> {
  const list = client.value.events.list({ type: "file.uploaded", limit: PAGE_EVENTS }, { signal });
  const uploads: Sized[] = [];
  let { items, next } = await list;
  for (let page = 1; ; page++) {
    uploads.push(...items.filter(isUpload).map(toSized));
    if (next === undefined) return { uploads, since: undefined };
    if (page === MAX_PAGES) break;
    ({ items, next } = await list.page(next));
  }
  return { uploads, since: uploads.at(-1)?.createdAt };
}

/** The bytes of the uploads of each of the last 30 days, including files that were deleted since. */
export function UsageChart() {
  const id = useId();
  const { value, error, reload, change } = useData(["usage-chart"], readUploads);
  useEvents(isUpload, (events) =>
    change(({ uploads, since }) => {
      // The request may already have returned them.
      const known = new Set(uploads.map(({ _id }) => _id));
      const added = (events as FileEvent[]).filter(({ _id }) => !known.has(_id)).map(toSized);
      return { uploads: [...added, ...uploads], since };
    }),
  );
  return (
    <section class="card stack" aria-labelledby={id}>
      <h2 id={id}>Uploads</h2>
      <Failure error={error} onRetry={reload} />
      {value ? <Totals {...value} /> : !error && <Skeleton rows={4} />}
    </section>
  );
}

function Totals({ uploads, since: oldest }: Uploads) {
  const days = dailyTotals(uploads, Date.now());
  const count = days.reduce((sum, one) => sum + one.count, 0);
  const bytes = days.reduce((sum, one) => sum + one.bytes, 0);
  const since = oldest && new Date(oldest) > (days[0]?.start ?? 0) ? oldest : undefined;
  return (
    <>
      <p>
        {countOf(count, "file")} ({formatBytes(bytes)}){" "}
        {since ? `since ${day.format(new Date(since))}` : `in the last ${CHART_DAYS} days`}
      </p>
      <Bars days={days} />
      <p class="quiet">
        From the event log, including files that were deleted since.
        {since && ` Older uploads are not shown, because a chart reads at most ${MAX_PAGES * PAGE_EVENTS} events.`}
      </p>
    </>
  );
}

function Bars({ days }: { days: Day[] }) {
  const highest = Math.max(1, ...days.map(({ bytes }) => bytes));
  const busiest = days.reduce((one, other) => (other.bytes > one.bytes ? other : one));
  const most = formatBytes(busiest.bytes);
  const summary = busiest.count > 0 ? `Most on ${day.format(busiest.start)}: ${most}` : "No uploads";
  return (
    <figure class="chart">
      {/* The height of the highest bar. */}
      <p class="quiet number" aria-hidden="true">
        {busiest.count > 0 && most}
      </p>
      <svg
        role="img"
        aria-label={`Uploads per day. ${summary}.`}
        viewBox={`0 0 ${days.length * (BAR_WIDTH + GAP)} ${HEIGHT}`}
        preserveAspectRatio="none"
      >
        {days.map(({ start, count, bytes }, place) => {
          // A day with uploads is visible even next to a much busier one.
          const height = bytes > 0 ? Math.max(2, (bytes / highest) * HEIGHT) : 0;
          return (
            <rect key={place} x={place * (BAR_WIDTH + GAP)} y={HEIGHT - height} width={BAR_WIDTH} height={height}>
              <title>{`${day.format(start)}: ${countOf(count, "file")}, ${formatBytes(bytes)}`}</title>
            </rect>
          );
        })}
      </svg>
      <figcaption class="quiet">
        <span>{day.format(days[0]?.start)}</span>
        <span>{day.format(days.at(-1)?.start)}</span>
      </figcaption>
    </figure>
  );
}
