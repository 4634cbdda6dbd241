// Sets the theme before the page is drawn, so that it does not flash.
const chosen = localStorage.getItem("stepwell-theme");
if (chosen) document.documentElement.dataset.theme = chosen;
