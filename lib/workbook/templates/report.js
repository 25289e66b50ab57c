const form = document.querySelector("#filter"), bodies = [...document.querySelectorAll("#ledger tbody")];
const names = ["paper", "verdict", "place"], rows = bodies.flatMap(body => [...body.rows].slice(1));
const verdicts = [...form.verdict.options].slice(1).map(option => option.value);

function filter() {
  const words = form.words.value.toLowerCase().split(/\s+/);
  const chosen = names.filter(name => form[name].value);
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !chosen.every(name => row.dataset[name] === form[name].value) || !words.every(word => text.includes(word));
  }
  for (const body of bodies) body.hidden = [...body.rows].slice(1).every(row => row.hidden);
  const shown = rows.filter(row => !row.hidden).map(row => row.dataset.verdict);
  const parts = verdicts.map(verdict => [shown.filter(other => other === verdict).length, verdict]).filter(([count]) => count);
  const of = shown.length < rows.length ? `${shown.length} of ${rows.length} verdicts` : `${rows.length} verdicts`;
  document.querySelector("#counts").textContent = of + (parts.length ? ": " : "") + parts.map(part => part.join(" ")).join(", ");
}

form.hidden = false;
form.addEventListener("input", filter);
form.addEventListener("submit", event => event.preventDefault());
form.addEventListener("reset", () => setTimeout(filter));
filter();  // a browser may keep what was chosen before a reload

for (const link of document.querySelectorAll(".summary a")) {
  link.onclick = () => {
    form.words.value = "";
    for (const name of names) form[name].value = link.dataset[name];
    filter();
  };
}

addEventListener("beforeprint", () => document.querySelectorAll("details.table").forEach(table => { table.open = true; }));
