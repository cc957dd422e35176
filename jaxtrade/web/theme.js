// The switch between light and dark. Without a choice the page follows the system. Tells `onTheme` of each change.
"use strict";
window.jaxtrade = {};
(function (jt) {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const heard = [];

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : system.matches;
  }

  function changed(button) {
    button.textContent = isDark() ? "Light colours" : "Dark colours";
    heard.forEach((each) => each());
  }

  jt.onTheme = (listener) => heard.push(listener);
  jt.colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    changed(button);
  });
  system.addEventListener("change", () => changed(button));
  changed(button);
})(window.jaxtrade);
