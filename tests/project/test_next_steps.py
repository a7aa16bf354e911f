"""The commands that a run prints at its end send nothing elsewhere than the run did, and --offline lets nothing out at all."""

import re
import shlex
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
from doubles.endpoint import EndpointDouble, error, good_answer
from doubles.perturbations import some_of
from factories import read, read_json, write
from programs import error_line, flags, needs_encoder, run_command, succeeded
from qdrant_client import QdrantClient
from qdrant_client.http.exceptions import ResponseHandlingException
from tables import each_row, write_csv

from automedeval.records import RecordError
from automedeval.records.offline import is_here

ROWS = [
    ["May I take two pills?", "No.", "No, never.", "Yes."],
    ["Is 38.2 in a baby urgent?", "Yes.", "Today.", "No."],
]


@pytest.fixture
def endpoint(tmp_path, monkeypatch) -> Iterator[EndpointDouble]:
    """A server on this machine, in a folder with a table of answers, whose key is in MY_KEY; the environment is put back."""
    monkeypatch.chdir(tmp_path)
    own = {"OPENAI_API_KEY": "another-company's", "MY_KEY": "mine", "HOME": str(tmp_path)}
    offline = ("AUTOMEDEVAL", "HF_HUB", "HF_DATASETS", "TRANSFORMERS")
    # What a command sets is taken back at the end.
    unset = dict.fromkeys(("OPENAI_BASE_URL", *(f"{name}_OFFLINE" for name in offline)), "")
    for name, value in (own | unset).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    write_csv("answers.csv", ("question", "reference", "v1", "v2"), ROWS)
    with EndpointDouble(good_answer) as server:
        yield server


@pytest.fixture
def asked(monkeypatch) -> list[str]:
    """The hosts that a program wants to reach, of which only this machine's are let through."""
    hosts: list[str] = []
    connect = socket.socket.connect
    look_up = socket.getaddrinfo

    def closed(host):
        hosts.append(str(host))
        if host not in ("127.0.0.1", "::1", "localhost"):
            raise OSError(f"the network is closed: {host}")

    def connected(self, address):
        closed(address[0] if isinstance(address, tuple) else "localhost")
        connect(self, address)

    def looked_up(host, *more, **options):
        closed(host)
        return look_up(host, *more, **options)

    monkeypatch.setattr(socket.socket, "connect", connected)
    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    return hosts


def printed_commands(text: str) -> list[list[str]]:
    """Return the words of the commands in what a program printed, without the closing full stop of a sentence."""
    lines = (
        line[line.index("automedeval ") :] for line in text.splitlines() if "automedeval " in line
    )
    return [shlex.split(line.rstrip(".")) for line in lines]


def reported(command: list[str], *more: object):
    """Run a printed command of a report, without its encoder and with few resamples."""
    return run_command(*command[1:], "--encoder", "none", "--resamples", 100, *more)


@pytest.mark.parametrize("place", ["option", "environment"])
def test_a_printed_command_asks_the_server_of_its_run_with_its_key(
    place, endpoint, asked, monkeypatch, tmp_path
):
    options = ["--base_url", endpoint.url] if place == "option" else []
    if place == "environment":
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    options += flags(
        judge="openai:mine", api_key_env="MY_KEY", max_new_tokens=400, score_decoding="free", seed=7
    )
    judged = succeeded(run_command("judge", "answers.csv", *options))
    monkeypatch.setenv("OPENAI_BASE_URL", "")  # another shell
    (report,) = printed_commands(judged.stdout)
    printed = printed_commands(succeeded(reported(report)).stdout)
    audits = [words for words in printed if words[1] == "audit"]
    assert audits
    for words in audits:
        before = len(endpoint.requests)
        order = ("--perturbations", some_of(tmp_path, "order"))
        done = run_command(*words[1:], *order, "--encoder", "none")
        assert done.returncode in (0, 3), done.stderr
        new = endpoint.requests[before:]
        assert 400 in {each["body"].get("max_completion_tokens") for each in new if each["body"]}
        audit = words[words.index("--output") + 1]
        succeeded(reported(report, "--audits", audit))  # of this judge
    assert set(asked) <= {"127.0.0.1"}
    assert {each["headers"]["authorization"] for each in endpoint.requests} == {"Bearer mine"}


@needs_encoder
@each_row("user, place")
def test_no_file_and_no_line_has_a_password_or_a_key_of_an_address(
    user, place, endpoint, monkeypatch, tmp_path
):
    url = endpoint.url.replace("://", f"://{user}@") + "?key=s3cret"
    options = ["--base_url", url] if place == "option" else []
    monkeypatch.setenv("OPENAI_BASE_URL", url if place == "environment" else "")
    audit = flags(perturbations=some_of(tmp_path, "order"), encoder="none", output="audit")
    judged = run_command("judge", "answers.csv", "--judge", "openai:m", *options)
    (report,) = printed_commands(succeeded(judged).stdout)
    programs = [
        judged,
        reported(report),
        run_command("audit", "--judge", "openai:m", "--cases", "answers.csv", *audit, *options),
    ]
    assert Path("audit/audit.html").exists()
    endpoint.script = [error(401, f"no such user: {url}")]
    judge = ("judge", "answers.csv", "--output", "other", *options, "--judge")
    programs += [
        run_command(*judge, "openai:m"),
        run_command(*judge, url),
        run_command(*judge, "openai:m", "--base_urls", url),
    ]
    assert {each["query"] for each in endpoint.requests} == {"key=s3cret"}
    files = [file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file()]
    assert any(endpoint.url in text for text in files)
    printed = [done.stdout + done.stderr for done in programs]
    assert [text for text in printed + files if "s3cret" in text] == []
    (record,) = tmp_path.glob("verdicts/*/run-*.json")
    assert read_json(record)["arguments"]["base_url"] == endpoint.url


@each_row("url")
def test_a_malformed_address_is_told_without_its_password(url, endpoint):
    message = error_line(
        run_command("judge", "answers.csv", "--judge", "openai:m", "--base_url", url)
    )
    assert message.startswith("error: --base_url must begin with http:// or https:// and a host")
    assert "s3" not in message


def test_a_result_names_the_variables_that_decided_where_its_command_asks(
    endpoint, asked, monkeypatch, tmp_path
):
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    monkeypatch.setenv("AUTOMEDEVAL_OFFLINE", "1")
    judge = flags(judge="openai:mine", cases="answers.csv", encoder="none")
    options = flags(perturbations=some_of(tmp_path, "order"), output="first")
    assert run_command("audit", *judge, *options).returncode in (0, 3)
    words = shlex.split(read_json(Path("first/audit.json"))["settings"]["command"])
    start = words.index("automedeval")
    for name in ("OPENAI_BASE_URL", "AUTOMEDEVAL_OFFLINE"):  # another shell
        monkeypatch.setenv(name, dict(each.split("=", 1) for each in words[:start])[name])
    words[-1] = "second"
    before = len(endpoint.requests)
    assert run_command(*words[start + 1 :]).returncode in (0, 3)
    assert len(endpoint.requests) == 2 * before > 0
    assert set(asked) <= {"127.0.0.1"}


def test_no_audit_is_printed_where_it_could_not_ask_the_judge_as_the_run_did(endpoint):
    more = flags(judge="openai:org/my model", batch_file="r q.jsonl", score_decoding="free")
    options = ("judge", "answers.csv", *more)
    (command,) = re.findall(r"vllm run-batch .*(?=;)", succeeded(run_command(*options)).stdout)
    words = shlex.split(command)
    assert [words[3], words[5], words[-1]] == ["r q.jsonl", "r q.answers.jsonl", "org/my model"]
    said = []
    for asked in read(Path("r q.jsonl")):
        body = good_answer(asked["body"])["json"]
        said.append({"custom_id": asked["custom_id"], "response": {"body": body}})
    write(Path("r q.answers.jsonl"), said)
    (report,) = printed_commands(succeeded(run_command(*options)).stdout)
    assert "automedeval audit" not in succeeded(reported(report)).stdout


def test_an_audit_of_degrees_of_harm_is_refused_before_the_first_request(endpoint):
    judge = flags(judge="openai:m", rubric="harm", base_url=endpoint.url)
    message = error_line(run_command("audit", *judge, *flags(cases="answers.csv", output="harm")))
    assert message.startswith("error: --rubric harm: is answered in words")
    assert endpoint.asked == []


def test_an_offline_run_refuses_another_machine_and_its_next_step_is_offline_too(
    endpoint, asked, monkeypatch
):
    options = ("judge", "answers.csv", "--judge", "openai:mine", "--offline")
    refused = [run_command(*options)]
    for host in ("models.example.com", "10.1.2.3"):
        refused.append(run_command(*options, "--base_url", f"http://{host}/v1"))
    with monkeypatch.context() as variable:
        variable.setenv("AUTOMEDEVAL_OFFLINE", "1")
        refused.append(run_command(*options[:-1]))
    for done in refused:
        assert re.search("--offline: .* is not on this machine", error_line(done))
    assert not asked
    done = succeeded(run_command(*options, "--base_url", endpoint.url, "--score_decoding", "free"))
    (report,) = printed_commands(done.stdout)
    assert "--offline" in report


def test_offline_refuses_what_another_library_wants_to_send(endpoint):
    options = ("answers.csv", "--judge", "baseline:longer text", "--offline")
    succeeded(run_command("judge", *options))
    with pytest.raises(RecordError, match="--offline: models"):
        socket.create_connection(("models.example.com", 80))
    with pytest.raises(RecordError, match="--offline: 10"):
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"question", ("10.1.2.3", 53))


def test_offline_lets_nothing_out_through_a_proxy_of_this_machine(endpoint, monkeypatch):
    onward = {"Location": "http://models.example.com/v1/chat/completions"}
    with EndpointDouble({"status": 307, "json": {}, "headers": onward}) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url.removesuffix("/v1"))
        options = flags(judge="openai:mine", base_url=proxy.url, max_retries=0)
        assert run_command("judge", "answers.csv", *options, "--offline").returncode == 1
        store = QdrantClient(url="http://qdrant.example.com:6333", check_compatibility=False)
        with pytest.raises(ResponseHandlingException):
            store.get_collections()
        with pytest.raises(RecordError, match="--offline: books"):
            urllib.request.urlopen("http://books.example.com/tetanus.md")
        assert proxy.asked
        assert [each["path"] for each in proxy.requests if "://" in each["path"]] == []


@each_row("host, here")
def test_a_host_is_this_machine_s_by_its_whole_name(host, here):
    assert is_here(host) == here
