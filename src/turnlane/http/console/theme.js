// Light or dark as the person chose, before anything is painted; without a choice, as the system says.

try {
  const theme = localStorage.getItem("turnlane.theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // A browser that keeps nothing has no choice to follow.
}
