// A table that is wider than its place becomes a list of cards: a row is a card, and each of its values has the title of
// its column before it. Without this, the table scrolls in its place.
"use strict";

const phone = matchMedia("(max-width: 760px)");
// As many characters as there is room for beside other values.
const LONG = 40;
const tables = () => document.querySelectorAll("main table.list:has(thead)");

function label(table) {
  const titles = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  for (const row of table.querySelectorAll("tbody tr")) {
    if (row.cells.length !== titles.length) continue;
    if (!row.querySelector(":scope > .title")) row.cells[["#", ""].includes(titles[0]) ? 1 : 0].classList.add("title");
    [...row.cells].forEach((cell, place) => {
      cell.dataset.label = titles[place];
      const { length } = cell.textContent.trim();
      cell.classList.toggle("words", length > 0 && !cell.matches(".num, .title, .acts, .check, .line"));
      cell.classList.toggle("long", length > LONG);
    });
  }
}

// How wide the place of each table was when it was last fitted.
const fitted = new WeakMap();

function fit(table) {
  const place = table.parentElement;
  const width = place.clientWidth;
  // In a closed part of the page. It is fitted when it opens.
  if (!width) return;
  // While the page is refreshed, cards remain cards: a number that grows and shrinks would make the page jump.
  const isKept = "cards" in table.dataset && fitted.get(place) === width;
  fitted.set(place, width);
  if (isKept) return;
  delete table.dataset.cards;
  // The list of jobs has cards of its own for a phone, which need no script.
  const isNarrow = phone.matches ? !table.matches(".stack") : place.scrollWidth > width;
  if (isNarrow) table.dataset.cards = "";
}

const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    // After a refresh, something else may be in its place.
    const table = target.querySelector(":scope > table.list");
    if (table && fitted.get(target) !== target.clientWidth) fit(table);
  }
});

function arrange() {
  for (const table of tables()) {
    label(table);
    fit(table);
    resized.observe(table.parentElement);
  }
}

document.addEventListener("htmx:after:swap", arrange);
arrange();
