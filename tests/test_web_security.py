"""Who may use the server: foreign Host and Origin, no token, an old token; and what answers carry."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pahs.errors import PahsError
from pahs.web.security import made_token
from web_server import Server, serving, start


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("local")) as server:
        yield server


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("team"), "--host", "0.0.0.0", "--name", "videos.example") as server:
        yield server


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.nip.io:80", "", "10.1.2.3"]
)
def test_a_name_that_is_not_ours_is_refused(local: Server, host: str) -> None:
    """A page of evil.example whose name is made to resolve to this machine."""
    for method, path in (("GET", "/"), ("GET", "/api/jobs"), ("PUT", "/api/jobs?name=a.mp4")):
        assert local.ask(method, path, headers={"Host": host})[0] == 421
    assert not list((local.folder / "files").iterdir())


@pytest.mark.parametrize("headers", [{"Host": "["}, {"Host": "localhost", "Origin": "http://["}])
def test_a_name_that_is_none_is_refused(local: Server, headers: dict[str, str]) -> None:
    status, answer, _ = local.ask("GET", "/api/jobs", headers=headers)
    assert status == 400 and "Host or Origin" in answer["error"]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8765", "[::1]:99", "LOCALHOST"])
def test_names_of_this_machine_are_fine(local: Server, host: str) -> None:
    assert local.ask("GET", "/api/jobs", headers={"Host": host})[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:3000"},
    ],
)
def test_other_sites_can_neither_post_nor_read(local: Server, headers: dict[str, str]) -> None:
    assert local.ask("PUT", "/api/jobs?name=a.mp4", b"x", {"Host": "localhost", **headers})[0] == 403
    assert (
        local.ask("POST", "/api/jobs", {"name": "a.mp4", "size": 1}, {"Host": "localhost", **headers})[0]
        == 403
    )
    assert local.ask("GET", "/api/jobs", headers={"Host": "localhost", **headers})[0] == 403
    assert not local.jobs() and not list((local.folder / "files").iterdir())


def test_every_answer_is_locked_down(local: Server) -> None:
    for path in ("/", "/api/jobs", "/nothing", "/static/app.js"):
        headers = local.ask("GET", path)[2]
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer" and "server" not in headers


def test_what_runs_for_a_team_wants_its_token(team: Server) -> None:
    assert team.token and len(team.token) >= 24
    assert (team.folder / "token").stat().st_mode & 0o077 == 0 and team.folder.stat().st_mode & 0o077 == 0
    nobody = {"Cookie": ""}
    status, answer, _ = team.ask("GET", "/api/jobs", headers=nobody)
    assert status == 401 and "token" in answer["error"]
    for method, path in (
        ("PUT", "/api/jobs?name=a.mp4"),
        ("GET", "/api/events"),
        ("GET", "/api/jobs/1/result"),
    ):
        assert team.ask(method, path, headers=nobody)[0] == 401
    assert team.ask("GET", "/api/jobs", headers={"Authorization": "Bearer wrong"})[0] == 401
    assert not list((team.folder / "files").iterdir())
    status, _, headers = team.ask("GET", "/", headers=nobody)
    assert status == 303 and headers["location"] == "/sign-in"
    assert team.ask("GET", "/sign-in", headers=nobody)[0] == 200
    assert team.ask("GET", "/api/jobs")[0] == 200, "as Bearer"
    assert team.ask("GET", "/api/jobs", headers={"Host": "evil.example", "Cookie": ""})[0] == 421
    for host in ("192.168.1.7:8765", "videos.example"):
        assert team.ask("GET", "/api/jobs", headers={"Host": host, "Cookie": ""})[0] == 401, (
            "known, not signed in"
        )


def test_behind_a_proxy_the_token_is_wanted_too(tmp_path: Path) -> None:
    """All that a proxy passes on comes from this machine."""
    with serving(tmp_path, "--name", "videos.example") as proxied:
        assert proxied.token and len(proxied.token) >= 24
        for host in ("videos.example", "localhost"):
            assert proxied.ask("GET", "/api/jobs", headers={"Host": host, "Cookie": ""})[0] == 401
        assert proxied.ask("GET", "/api/jobs", headers={"Host": "videos.example"})[0] == 200, "as Bearer"
        assert proxied.ask("GET", "/api/jobs", headers={"Host": "10.1.2.3"})[0] == 421


@pytest.mark.parametrize("left", [None, "", "\n"])
def test_a_token_is_made_once(left: str | None, tmp_path: Path) -> None:
    file = tmp_path / "token"
    if left is not None:  # by a server that was killed before it had written it
        file.write_text(left)
    token = made_token(tmp_path)
    assert len(token) >= 24 and made_token(tmp_path) == token
    assert file.stat().st_mode & 0o777 == 0o600 and list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("content", [b"short", b"\xff\xff"])
def test_a_token_file_that_is_no_good_is_named(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(PahsError, match=r"token: .*; remove it"):
        made_token(tmp_path)


def test_the_cookie_ends_with_the_token(tmp_path: Path) -> None:
    first = start(tmp_path, "--token", "the first token")
    status, _, headers = first.ask("GET", "/?token=the%20wrong%20token", headers={"Cookie": ""})
    assert status == 303 and "set-cookie" not in headers
    status, _, headers = first.ask("GET", "/?token=the%20first%20token", headers={"Cookie": ""})
    cookie = headers["set-cookie"]
    assert status == 303 and "HttpOnly" in cookie and "SameSite=strict" in cookie
    assert "first" not in cookie, "it does not give the token away"
    signed_in = {"Cookie": cookie.partition(";")[0]}
    assert first.ask("GET", "/api/jobs", headers=signed_in)[0] == 200
    first.stop()
    second = start(tmp_path, "--token", "the second token")
    assert second.ask("GET", "/api/jobs", headers=signed_in)[0] == 401
    assert second.ask("PUT", "/api/jobs?name=a.mp4", b"x", signed_in)[0] == 401
    assert second.ask("GET", "/api/jobs", headers={"Authorization": "Bearer the first token"})[0] == 401
    second.stop()
    for server in (first, second):
        assert server.process.stdout is not None
        server.process.stdout.close()
