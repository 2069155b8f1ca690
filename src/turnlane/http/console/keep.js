// A list that changes in place: what is the same stays, with its focus, its selection and what is open in it.

const known = new WeakMap(); // an element, and what it was made for

// `items` are { key, sign, make }, in order. An element is made anew only where the sign is another than before.
export function keep(parent, items) {
  const before = new Map([...parent.children].map((each) => [known.get(each)?.key, each]));
  const focused = focusIn(parent);
  const now = items.map(({ key, sign, make }) => {
    const old = before.get(key);
    if (old && known.get(old).sign === sign) return old;
    const made = make();
    known.set(made, { key, sign });
    if (old) openAsIn(old, made);
    return made;
  });
  place(parent, now);
  if (focused && !focused.element.isConnected) focusAgain(now, focused);
}

// Nothing is moved that stands where it belongs: a moved element loses its focus.
function place(parent, elements) {
  const wanted = new Set(elements);
  for (const each of [...parent.children]) if (!wanted.has(each)) each.remove();
  let here = parent.firstElementChild;
  for (const each of elements) {
    if (each === here) here = here.nextElementSibling;
    else parent.insertBefore(each, here);
  }
}

function focusIn(parent) {
  const element = document.activeElement;
  if (!element || element === parent || !parent.contains(element)) return null;
  let child = element;
  while (child.parentElement !== parent) child = child.parentElement;
  return { element, key: known.get(child)?.key, act: element.dataset.act };
}

function focusAgain(elements, { key, act }) {
  const child = elements.find((each) => known.get(each).key === key);
  const inside = [...(child?.querySelectorAll("a, summary, [tabindex], button:not(:disabled)") ?? [])];
  (inside.find((each) => act && each.dataset.act === act) ?? inside[0])?.focus();
}

function openAsIn(old, made) {
  const details = made.querySelectorAll("details");
  old.querySelectorAll("details").forEach((each, place) => {
    if (details[place]) details[place].open = each.open;
  });
}
