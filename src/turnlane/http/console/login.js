// What the form alone cannot do: keep the place after the #, and notice that one is logged in already.

const to = document.getElementById("to");

// A redirect keeps what stands after the #, and the server never sees it.
if (location.hash && !to.value.includes("#")) to.value += location.hash;

// Who followed a link from elsewhere came without their badge: a browser shows it only to those who come from here.
try {
  const answer = await fetch("/console/login", { redirect: "manual" });
  if (answer.type === "opaqueredirect") location.replace(to.value);
} catch {
  // The form is there, and the next try tells.
}
