(function () {
  "use strict";
  document.documentElement.classList.add("js");
  const data = JSON.parse(document.getElementById("report-data").textContent);

  function bytes(text) {
    const raw = atob(text);
    const out = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return out;
  }

  // ----- The slider over x ---------------------------------------------------------
  function startExplorer(card) {
    const id = card.dataset.explorer;
    const part = data.explorers[id];
    const svg = card.querySelector("svg");
    const slider = document.getElementById(id + "-slider");
    const value = document.getElementById(id + "-value");
    const readout = document.getElementById(id + "-readout");
    const cursor = svg.querySelector(".cursor");
    const area = part.area;
    const [left, right] = part.profile;
    const [yFirst, yLast, count] = part.y;
    const keys = Object.keys(part.methods);
    keys.forEach((key) => { part.methods[key].bytes = bytes(part.methods[key].density); });
    const px = (x) => area.left + (x - area.xLow) / (area.xHigh - area.xLow) * (area.right - area.left);
    const py = (y) => area.bottom - (y - area.yLow) / (area.yHigh - area.yLow) * (area.bottom - area.top);
    const isShown = (key) => {
      const box = document.getElementById("show-" + key);
      return !box || box.checked;
    };

    function show() {
      const at = Number(slider.value);
      const x = px(part.places[at]).toFixed(1);
      cursor.setAttribute("d", "M" + x + " " + area.top + "V" + area.bottom);
      value.textContent = part.labels[at];
      const on = keys.filter(isShown);
      // With no method shown, all of them set the scale: their hidden curves stay finite.
      const scaled = on.length ? on : keys;
      const peak = Math.max(1e-300, ...scaled.map((key) => part.methods[key].peaks[at]));
      keys.forEach((key) => {
        const one = part.methods[key];
        const reach = (right - left) * one.peaks[at] / peak / 255;
        let path = "M" + left + " " + py(yFirst).toFixed(1);
        for (let i = 0; i < count; i++) {
          const y = yFirst + (yLast - yFirst) * i / (count - 1);
          path += "L" + (left + reach * one.bytes[at * count + i]).toFixed(1) + " " + py(y).toFixed(1);
        }
        path += "L" + left + " " + py(yLast).toFixed(1) + "Z";
        svg.querySelector('.profile[data-method="' + key + '"]').setAttribute("d", path);
      });
      readout.textContent = on.reverse().map((key) => {
        const [mean, low, high] = part.methods[key].summary[at];
        const name = keys.length > 1 ? part.methods[key].name + ": " : "";
        return name + "mean " + mean + ", 95\u202f% between " + low + " and " + high;
      }).join(". ") + (on.length ? "." : "");
    }

    slider.addEventListener("input", show);
    document.querySelectorAll(".switch input").forEach((box) => box.addEventListener("change", show));
    // The picture itself is a slider, too: press on it and drag.
    svg.addEventListener("pointermove", (event) => { if (event.buttons) follow(event); });
    svg.addEventListener("pointerdown", follow);
    function follow(event) {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
      if (x > area.right) return;
      let best = 0;
      part.places.forEach((place, i) => {
        if (Math.abs(px(place) - x) < Math.abs(px(part.places[best]) - x)) best = i;
      });
      slider.value = best;
      show();
    }
    show();
  }
  document.querySelectorAll("[data-explorer]").forEach(startExplorer);

  // ----- The row under the pointer -------------------------------------------------
  const box = document.getElementById("row-box");
  const rows = data.rows;
  const densities = bytes(rows.density);
  const parts = {
    title: box.querySelector("h3"),
    text: box.querySelector("p"),
    list: box.querySelector("dl"),
    curve: box.querySelector(".profile"),
    target: box.querySelector(".target"),
    ends: box.querySelectorAll(".tick"),
  };
  let current = null;

  function addPair(name, value) {
    const pair = document.createElement("div");
    const term = document.createElement("dt");
    const what = document.createElement("dd");
    term.textContent = name;
    what.textContent = value;
    pair.append(term, what);
    parts.list.append(pair);
  }

  function showRow(number) {
    const base = 78, height = 70, width = 260;
    parts.title.textContent = rows.names[number];
    const [low, high] = rows.ends[number];
    let path = "M0 " + base;
    for (let i = 0; i < rows.points; i++) {
      const share = densities[number * rows.points + i] / 255;
      path += "L" + (width * i / (rows.points - 1)).toFixed(1) + " " + (base - height * share).toFixed(1);
    }
    parts.curve.setAttribute("d", path + "L" + width + " " + base + "Z");
    const x = (width * (rows.y[number] - low) / (high - low)).toFixed(1);
    parts.target.setAttribute("d", "M" + x + " 4V" + base);
    parts.ends[0].textContent = rows.end_texts[number][0];
    parts.ends[1].textContent = rows.end_texts[number][1];
    const [mean, lower, upper] = rows.summary[number];
    parts.text.textContent = rows.target + " = " + rows.y_text[number] + " (upright mark); predicted " +
      mean + ", 95\u202f% between " + lower + " and " + upper;
    parts.list.textContent = "";
    rows.columns.forEach((name, i) => addPair(name, rows.cells[number][i]));
    if (rows.left_out) addPair("and", rows.left_out + " more columns");
    box.hidden = false;
    document.querySelectorAll(".picked").forEach((dot) => dot.classList.remove("picked"));
    document.querySelectorAll('circle[data-row="' + number + '"]').forEach((dot) => dot.classList.add("picked"));
    current = number;
  }

  function hideRow() {
    box.hidden = true;
    current = null;
    document.querySelectorAll(".picked").forEach((dot) => dot.classList.remove("picked"));
  }

  // The nearest dot within reach counts: a dot of five pixels is hard to hit.
  function nearest(event) {
    const direct = event.target.closest("[data-row]");
    if (direct) return Number(direct.dataset.row);
    const svg = event.target.closest("svg.chart");
    if (!svg) return null;
    const frame = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / frame.width;
    const x = (event.clientX - frame.left) * scale, y = (event.clientY - frame.top) * scale;
    let found = null, best = Math.pow(10 * Math.max(scale, 1), 2);
    svg.querySelectorAll("circle[data-row]").forEach((dot) => {
      const dx = dot.cx.baseVal.value - x, dy = dot.cy.baseVal.value - y;
      const far = dx * dx + dy * dy;
      if (far < best && dot.getClientRects().length) { best = far; found = Number(dot.dataset.row); }
    });
    return found;
  }

  function look(event) {
    if (box.contains(event.target)) return;
    const number = nearest(event);
    if (number === null) {
      if (event.type === "pointerdown" || event.pointerType === "mouse") hideRow();
    } else if (number !== current) {
      showRow(number);
    }
  }
  document.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse" && !event.buttons) look(event); });
  document.addEventListener("pointerdown", look);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideRow(); });
  box.querySelector("button").addEventListener("click", hideRow);
  // Closed details are opened for printing, and closed again afterwards.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((part) => { part.open = true; });
  });
  window.addEventListener("afterprint", () => opened.forEach((part) => { part.open = false; }));

  // Native tooltips would cover the box, which shows more.
  document.querySelectorAll("circle[data-row] > title").forEach((title) => title.remove());
}());
