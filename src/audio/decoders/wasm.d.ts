// biome-ignore-all lint/style/noRestrictedGlobals: The modules are compiled when the Worker is deployed.
/** A module that is compiled when the Worker is deployed. */
declare module "*.wasm" {
  const module: WebAssembly.Module;
  export default module;
}
