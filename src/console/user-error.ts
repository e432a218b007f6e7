/** An error of the console whose message is written for the user. */
export class UserError extends Error {}
