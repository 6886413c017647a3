// Sorts tables by a click on a column's head, and shows titles at once, to the keyboard too.
"use strict";
const number = (text) => {
  const found = text.replace(/−/g, "-").match(/-?\d+(\.\d+)?/);
  return found ? Number(found[0]) : NaN;
};
const keyOf = (row, column, kind) => {
  const cell = [...row.cells].find((c, n) => n === column && c.colSpan === 1);
  const text = cell ? cell.textContent.trim() : "";
  return kind === "number" ? number(text) : text;
};
const before = (a, b) => {
  const missing = (x) => x === "" || Number.isNaN(x);
  if (missing(a) || missing(b)) return [missing(a) - missing(b), true];
  return [typeof a === "number" ? a - b : a.localeCompare(b), false];
};
const sort = (head, column) => {
  const table = head.closest("table"), body = table.tBodies[0];
  const up = head.getAttribute("aria-sort") !== "ascending";
  for (const other of table.tHead.querySelectorAll("[aria-sort]")) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", up ? "ascending" : "descending");
  const keyed = [...body.rows].map((row) => [keyOf(row, column, head.dataset.sort), row]);
  keyed.sort(([a], [b]) => {
    const [order, last] = before(a, b);
    return up || last ? order : -order;
  });
  for (const [, row] of keyed) body.append(row);
};
for (const head of document.querySelectorAll("th[data-sort]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  button.addEventListener("click", () => sort(head, head.cellIndex));
}
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("role", "tooltip");
document.body.append(tip);
const show = (target, text) => {
  const box = target.getBoundingClientRect();
  tip.textContent = text;
  tip.hidden = false;
  const left = Math.min(box.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(8, left) + scrollX}px`;
  tip.style.top = `${box.bottom + 6 + scrollY}px`;
};
const hide = () => { tip.hidden = true; };
const explain = (target, text) => {
  target.tabIndex = 0;
  target.setAttribute("aria-label", target.matches("svg") ? text : `${target.textContent.trim()}: ${text}`);
  for (const event of ["mouseenter", "focus"]) target.addEventListener(event, () => show(target, text));
  for (const event of ["mouseleave", "blur"]) target.addEventListener(event, hide);
};
for (const target of document.querySelectorAll("td[title], abbr[title]")) {
  explain(target, target.title);
  target.removeAttribute("title");
}
for (const target of document.querySelectorAll("svg.range[role=img]")) {
  const title = target.querySelector("title");
  explain(target, title.textContent);
  title.remove();
}
addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
