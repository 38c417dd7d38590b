function buildTabs() {
  if (DATA.kind === "runs") runPages(DATA.runs, DATA.comparisons);
  else if (DATA.kind === "index") indexPages(DATA);
  else if (DATA.kind === "recording") recordingPages(DATA);
  else sweepPages(DATA);
  for (const entry of TABS) {
    entry.button = el("button", { type: "button", role: "tab", onclick: () => openTab(entry.name) }, entry.name);
    document.getElementById("tabs").append(entry.button);
  }
}

buildTabs();
document.getElementById("theme").addEventListener("click", () =>
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
setTheme(window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
openTab(TABS[0].name);
startLive();
