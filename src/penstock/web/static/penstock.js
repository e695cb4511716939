// Shortcuts: a key presses the element that names it (data-key). Keys are left alone where text is written, with
// modifiers, behind a dialog, and where the reader has turned them off.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
  const at = document.activeElement;
  if (at && (at.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(at.tagName))) return;
  if (document.querySelector(".q-dialog__inner")) return;
  if (event.key !== "?" && localStorage.getItem("penstock-keys") === "off") return;
  const meant = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
  if (!meant || meant.disabled) return;
  event.preventDefault();
  meant.click();
});

// Light or dark: a cookie, so that the next page comes in the right colours at once.
function penstockTheme() {
  const dark = !document.body.classList.contains("body--dark");
  Quasar.Dark.set(dark);
  document.cookie = `penstock_theme=${dark ? "dark" : "light"}; path=/; max-age=31536000; samesite=lax`;
}

function penstockKeys() {
  const off = localStorage.getItem("penstock-keys") === "off";
  localStorage.setItem("penstock-keys", off ? "on" : "off");
  Quasar.Notify?.create({ message: off ? "Single keys are on" : "Single keys are off", position: "bottom" });
}
