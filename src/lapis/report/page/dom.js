// What every page uses to find, make and move among its elements.
"use strict";

const byId = (id) => document.getElementById(id);

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

const Dom = {};

/** A row of a table: each text in a cell of this tag. */
Dom.row = (tag, cells) => element("tr", {}, ...cells.map((text) => element(tag, {}, text)));

/** Fill a list with facts: a name, a value and what a pointer is told. */
Dom.describe = (host, facts) =>
  host.replaceChildren(
    ...facts.map(([name, value, title]) =>
      element("div", { title: title ?? "" }, element("dt", {}, name), element("dd", {}, value)),
    ),
  );

/** The button that switches between light and dark; `redraw` is for what takes its colours from the style sheet. */
Dom.themeButton = (redraw) => {
  byId("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).getPropertyValue("--dark").trim() === "1";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
};

/** Call `redraw` when the width of the page changes. */
Dom.onWidth = (redraw) => {
  let width = document.body.clientWidth;
  new ResizeObserver(() => {
    if (document.body.clientWidth === width) return;
    width = document.body.clientWidth;
    redraw();
  }).observe(document.body);
};

/** Many buttons with one tab stop: arrow keys, Home and End move the focus and call `reach` with the button. */
Dom.roving = (host, selector, reach, columns = () => 1) => {
  host.addEventListener("keydown", (event) => {
    const items = [...host.querySelectorAll(selector)];
    const at = items.indexOf(event.target);
    const wide = columns(items);
    const across = { ArrowLeft: at - 1, ArrowRight: at + 1, ArrowUp: at - wide, ArrowDown: at + wide };
    const to = { ...across, Home: 0, End: items.length - 1 }[event.key];
    if (at < 0 || to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (!(to in items)) return;
    Dom.oneStop(items, items[to]);
    items[to].focus();
    reach(items[to]);
  });
};

/** Only `chosen`, or else the first of the items, is a tab stop. */
Dom.oneStop = (items, chosen) => {
  const stop = items.includes(chosen) ? chosen : items[0];
  for (const item of items) item.tabIndex = item === stop ? 0 : -1;
};

/** How many items stand in the first line of a grid that wraps. */
Dom.perLine = (items) => items.filter((item) => item.offsetTop === items[0].offsetTop).length || 1;

/** Radio buttons drawn as a segmented control: `choose` gets the value of the one chosen. */
Dom.radios = (host, choose) => {
  const pick = (button) => {
    Dom.check(host, button.dataset.value);
    choose(button.dataset.value);
  };
  Dom.roving(host, '[role="radio"]', pick);
  host.addEventListener("click", (event) => {
    const button = event.target.closest('[role="radio"]');
    if (button && button.getAttribute("aria-disabled") !== "true") pick(button);
  });
};

/** Show `value` as the one chosen among radio buttons. */
Dom.check = (host, value) => {
  const items = [...host.querySelectorAll('[role="radio"]')];
  for (const item of items) item.setAttribute("aria-checked", String(item.dataset.value === value));
  Dom.oneStop(
    items,
    items.find((item) => item.dataset.value === value),
  );
};

/** Offer text as a file. */
Dom.download = (name, type, text) => {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
};

/** Lines of cells as CSV; a cell with a comma, a quote or a line break is quoted. */
Dom.csv = (lines) => {
  const cell = (value) => (/[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  return `${lines.map((line) => line.map(cell).join(",")).join("\n")}\n`;
};

// A table wider than its place scrolls, says so, and can be scrolled with the keyboard.
for (const host of document.querySelectorAll(".scroll")) {
  const hint = element("p", { className: "scroll-hint", hidden: true }, "Scroll sideways for more columns →");
  host.before(hint);
  const look = () => {
    const cut = host.scrollWidth > host.clientWidth + 1;
    hint.hidden = !cut;
    if (cut) host.tabIndex = 0;
    else host.removeAttribute("tabindex");
  };
  const observer = new ResizeObserver(look);
  observer.observe(host);
  for (const child of host.children) observer.observe(child);
}
