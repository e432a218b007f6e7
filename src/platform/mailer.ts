/** Sends plain text. */
export interface Mailer {
  /** @throws Error with only the platform's code, because its message may contain the recipient */
  send(mail: { to: string; subject: string; text: string }): Promise<void>;
}

/** Cloudflare's Email Service. */
export function createMailer(binding: SendEmail, from: string): Mailer {
  return {
    async send(mail) {
      try {
        await binding.send({ from, ...mail });
      } catch (error) {
        throw new Error(`The email was not sent: ${(error as { code?: string }).code ?? "unknown"}`);
      }
    },
  };
}
