// What the scripts find in the page beside each other: plotly.js, once it has run.
declare const Plotly: {
  react(node: HTMLElement, traces: object[], layout: object, config: object): void;
  purge(node: HTMLElement): void;
};
interface Window {
  Plotly?: typeof Plotly;
}
