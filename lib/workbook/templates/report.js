const form = document.querySelector("#filter"), body = document.querySelector("#ledger tbody"), rows = [...body.rows];
const verdicts = [...form.verdict.options].map(option => option.value).filter(Boolean);

function filter() {
  const words = form.words.value.toLowerCase().split(/\s+/);
  const chosen = ["paper", "verdict", "profile"].filter(name => form[name]?.value);
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !chosen.every(name => row.dataset[name] === form[name].value) || !words.every(word => text.includes(word));
  }
  const shown = rows.filter(row => !row.hidden).map(row => row.dataset.verdict);
  const parts = verdicts.map(verdict => [shown.filter(other => other === verdict).length, verdict]).filter(([count]) => count);
  const of = shown.length < rows.length ? `${shown.length} of ${rows.length} rows` : `${rows.length} rows`;
  document.querySelector("#counts").textContent = of + (parts.length ? ": " : "") + parts.map(part => part.join(" ")).join(", ");
}

function sort(column, header) {
  const up = header.getAttribute("aria-sort") !== "ascending";
  for (const other of header.parentNode.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", up ? "ascending" : "descending");
  const key = row => column ? row.cells[column].textContent : String(rows.indexOf(row)).padStart(6, "0");
  body.append(...rows.toSorted((a, b) => key(a).localeCompare(key(b)) * (up ? 1 : -1)));
}

form.hidden = false;
form.addEventListener("input", filter);
form.addEventListener("submit", event => event.preventDefault());
form.addEventListener("reset", () => setTimeout(filter));
filter();  // a browser may keep what was chosen before a reload

for (const link of document.querySelectorAll(".summary a")) {
  link.onclick = () => {
    form.reset();
    for (const name of ["paper", "verdict", "profile"]) if (form[name]) form[name].value = link.dataset[name];
  };
}

for (const header of document.querySelectorAll("#ledger th[data-sort]")) {
  const button = document.createElement("button");
  button.textContent = "\u2195";
  button.ariaLabel = `sort by ${header.textContent.toLowerCase()}`;
  button.onclick = () => sort(header.cellIndex, header);
  header.append(" ", button);
}

document.addEventListener("keydown", event => {
  const link = {Escape: "close", ArrowLeft: "previous", ArrowRight: "next"}[event.key];
  if (link) document.querySelector(`figure:target .${link}`)?.click();
});

addEventListener("beforeprint", () => document.querySelectorAll("details.table").forEach(table => { table.open = true; }));
