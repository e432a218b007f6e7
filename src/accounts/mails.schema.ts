import { index, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";

/** The emails of the last day, also those that could not be sent. Their number is limited, see accounts/mails.ts. */
export const sentMails = sqliteTable(
  "sent_mails",
  {
    id: text().primaryKey(),
    teamId: text("team_id").notNull(),
    /** Empty if the email could not be sent, so that the next one need not wait, or if it went to the address of the team. */
    userId: text("user_id").notNull(),
    /** The mailbox: the email as it is compared, without a `+tag`. Empty as above. */
    mailbox: text().notNull(),
    sentAt: integer("sent_at").notNull(),
  },
  (t) => [index("sent_mails_team").on(t.teamId, t.sentAt), index("sent_mails_time").on(t.sentAt)],
);
