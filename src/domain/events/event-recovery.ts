import { REENCRYPTED_ROWS } from "../access/encryption.ts";
import { newStep, type RecoveryStep } from "../recovery-step.ts";
import { purgeDeliveries, purgeExcessEvents, purgeOldEvents } from "./purge.ts";
import { reencryptSecrets } from "./signing.ts";
import { wakeWebhooks } from "./waking.ts";

export const EVENT_STEPS: RecoveryStep<"webhooks" | "purged" | "reencrypted">[] = [
  { name: "webhooks", count: "webhooks", isUrgent: true, start: wakeWebhooks },
  { name: "events", count: "purged", isUrgent: false, start: purgeOldEvents },
  { name: "excess_events", count: "purged", isUrgent: false, start: purgeExcessEvents },
  { name: "deliveries_purge", count: "purged", isUrgent: false, start: purgeDeliveries },
  newStep("secrets", "reencrypted", REENCRYPTED_ROWS, reencryptSecrets),
];
