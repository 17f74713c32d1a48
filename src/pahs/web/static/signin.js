const wrong = new URLSearchParams(location.search).has("wrong");
document.getElementById("wrong").hidden = !wrong;
document.getElementById("token").setAttribute("aria-invalid", String(wrong));
