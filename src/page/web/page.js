// SPDX-License-Identifier: MIT
// Lays the filtered image over the original and lets a slider move the border between them. Without
// JavaScript both are shown side by side.
for (const frame of document.querySelectorAll(".frame")) {
  const slider = document.createElement("input");
  slider.type = "range";
  slider.min = 0;
  slider.max = 1000;
  slider.value = 500;
  slider.setAttribute("aria-label", "How much of the original is shown");
  slider.addEventListener("input", () => frame.style.setProperty("--cut", slider.value / 10 + "%"));
  frame.append(slider);
  frame.classList.add("slides");
}
