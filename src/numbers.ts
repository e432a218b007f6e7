/** A whole number as texts show it, such as 20,000. `toLocaleString` would load the languages of `Intl`, which takes long. */
export const grouped = (number: number): string => String(number).replaceAll(/\B(?=(\d{3})+$)/g, ",");
