/** What a page refuses by itself, in words for people. */
export class Refusal extends Error {}
