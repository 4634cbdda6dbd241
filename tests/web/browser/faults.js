// What is wrong with the layout of a page: it scrolls sideways, something covers something else, or something is cut
// off that nobody can reach.
() => {
  const found = new Set();
  const styles = new Map();
  const style = (element) => styles.get(element) || styles.set(element, getComputedStyle(element)).get(element);
  const named = (element) => {
    const name = element.localName + (element.id && `#${element.id}`) + [...element.classList].map((one) => `.${one}`).join("");
    const cell = element.closest("td, th");
    return `${name}${cell && cell !== element ? ` in column ${cell.cellIndex}` : ""} "${element.textContent.trim().slice(0, 20)}"`;
  };

  // The part of a box that is not cut off by what is around it.
  function seen(box, around) {
    let { left, top, right, bottom } = box;
    for (let each = around; each && each !== document.body; each = each.parentElement) {
      if (style(each).overflow === "visible") continue;
      const edge = each.getBoundingClientRect();
      [left, top] = [Math.max(left, edge.left), Math.max(top, edge.top)];
      [right, bottom] = [Math.min(right, edge.right), Math.min(bottom, edge.bottom)];
    }
    return right - left > 1 && bottom - top > 1 ? { left, top, right, bottom } : null;
  }
  const overlap = (a, b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
  const boxes = (owner, rects, around) =>
    [...rects].map((rect) => seen(rect, around)).filter(Boolean).map((box) => ({ owner, box }));
  const shown = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });

  const texts = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const parent = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || parent.closest("select, textarea, datalist, script, svg, dialog") || !shown(parent)) continue;
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    texts.push(...boxes(parent, range.getClientRects(), parent));
  }
  const controls = [...document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea, summary")]
    .filter((element) => shown(element) && !element.closest("dialog"))
    .flatMap((element) => boxes(element, element.getClientRects(), element.parentElement));

  // Whatever is between the same heights, from the top down.
  const all = [...texts.map((each) => ({ ...each, isText: true })), ...controls].sort((a, b) => a.box.top - b.box.top);
  const cell = (element) => element.closest("td, th");
  const apart = (a, b) => !a.contains(b) && !b.contains(a);
  for (const [place, one] of all.entries())
    for (let next = place + 1; next < all.length && all[next].box.top < one.box.bottom; next += 1) {
      const other = all[next];
      if (!overlap(one.box, other.box) || !apart(one.owner, other.owner)) continue;
      if (one.isText && other.isText && cell(one.owner) === cell(other.owner)) continue;
      found.add(`${named(one.owner)} covers ${named(other.owner)}`);
    }

  const page = document.documentElement;
  if (page.scrollWidth > innerWidth) found.add(`the page is ${page.scrollWidth} pixels wide`);
  const canTab = (element) => element.tabIndex >= 0 || element.querySelector("a[href], button, input, [tabindex='0']");
  for (const element of document.body.querySelectorAll("*")) {
    const { overflowX, overflowY, textOverflow, webkitLineClamp, clipPath } = style(element);
    const wide = overflowX !== "visible" && element.scrollWidth > element.clientWidth + 1;
    const tall = overflowY !== "visible" && element.scrollHeight > element.clientHeight + 1;
    if (!(wide || tall) || !shown(element) || clipPath !== "none" || element.matches("input, select, textarea")) continue;
    const place = `${named(element)} is ${element.scrollWidth} of ${element.clientWidth} pixels wide`;
    const hides = (wide && overflowX === "hidden") || (tall && overflowY === "hidden");
    if (element.querySelector(":scope > table") || (wide && element.matches(".panel"))) found.add(`${place}: the table does not fit`);
    else if (!hides && !canTab(element)) found.add(`${place}, and the keyboard does not scroll it`);
    else if (hides && textOverflow !== "ellipsis" && webkitLineClamp === "none") found.add(`${place}, and is cut`);
    // A cut text can be read on the page that its row leads to.
    else if (hides && !element.closest("a") && !element.closest("tr, li, details")?.querySelector("a[href], summary")) found.add(`${place}, and leads nowhere`);
  }
  return [...found];
}
