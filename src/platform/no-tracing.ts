const trace = () => {};

/**
 * Stands in for the package `debug`, by which music-metadata traces its parsers: a Worker has no way to switch that on,
 * and need not carry it ([alias] in wrangler.toml).
 */
export default () => trace;
