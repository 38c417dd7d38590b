/** A page that `rlinf ui` serves requests news. What is being read stays until its reader wants the new one. */
function startLive() {
  if (!DATA.live) return;
  const { url, every_s: every } = DATA.live;
  let stamp = DATA.live.stamp;
  let waiting = null;
  const state = el("button", { id: "live", type: "button", title: "live view", onclick: show }, "live");
  const home = DATA.kind === "index" ? "" : el("a", { href: "/", id: "home" }, "all runs");
  document.getElementById("theme").before(home, state);

  function show() {
    if (waiting === null) return;
    rebuild(waiting);
    waiting = null;
    state.textContent = "live";
    state.classList.remove("news");
  }

  async function poll() {
    try {
      const answer = await fetch(`${url}${url.includes("?") ? "&" : "?"}stamp=${encodeURIComponent(stamp)}`);
      if (answer.status === 200) {
        waiting = unpacked(await answer.text());
        stamp = waiting.stamp;
        // An overview has nothing that a reader could lose by a change under the eyes, but for a filter being typed.
        /** @type {HTMLInputElement | null} */
        const filter = document.querySelector("main input[type=search]");
        const filtering = filter?.value;
        if (["Overview", "Runs"].includes(opened()) && !filtering) show();
        else {
          state.textContent = "new data: show";
          state.classList.add("news");
        }
      } else if (!answer.ok) {
        // Moved, removed, or damaged just now: what was read stays on the page.
        state.textContent = "can't be read";
        state.title = await answer.text();
      } else if (waiting === null) {
        state.textContent = "live";
        state.title = "live view";
      }
    } catch {
      state.textContent = "no connection";
    }
    setTimeout(poll, every * 1000);
  }
  setTimeout(poll, every * 1000);
}

function opened() {
  return TABS.find((entry) => entry.button.getAttribute("aria-selected") === "true")?.name;
}

/** All tabs again, from other data. */
function rebuild(fresh) {
  const [name, scroll, live] = [opened(), window.scrollY, DATA.live];
  for (const entry of TABS) {
    if (entry.section) {
      forget(entry.section);
      entry.section.remove();
    }
    entry.button.remove();
  }
  TABS.length = 0;
  for (const key of Object.keys(DATA)) delete DATA[key];
  Object.assign(DATA, fresh, { live });
  buildTabs();
  openTab(TABS.some((entry) => entry.name === name) ? name : TABS[0].name);
  window.scrollTo(0, scroll);
}
