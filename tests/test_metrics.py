"""Sinks: what a user reads is what was measured, and a resumed file has each update once."""

import json
import math
import re

import pytest

from jaxtrade.errors import DataError
from jaxtrade.rl.info import PPO_PROGRESS as PROGRESS
from jaxtrade.storage import digests
from jaxtrade.storage.events import EventWriter, masked_crc32c
from jaxtrade.storage.sinks import (
    JsonlSink,
    LogSink,
    TensorBoardSink,
    by_name,
    name_tag,
    panel_line,
    progress_line,
    read_rows,
)
from tests.messages import refused

NAN = float("nan")


def row(update, **changes):
    return {
        "update": update,
        "total_updates": 40,
        "steps": update * 1000,
        "seconds": 1.0,
        "steps_per_second": 54321.0,
        "eta_seconds": 3725.0,
        "episodes": 2,
        "episode_reward": 1.5,
        "approx_kl": 0.01234,
        "clip_fraction": 0.1,
        "entropy": 1.25,
        "explained_variance": 0.5,
        "learning_rate": 3e-4,
        "finite": True,
        "action_share": [0.25, 0.75],
    } | changes


NAMES = {"action_share": ["HOLD", "BUY"], "end_share": ["NONE", "BUST", "SESSION_END"]}


def traded(update, **changes):
    """A row of the trading environment."""
    return row(
        update,
        illegal=0,
        illegal_executed=0,
        episode_trades=2.5,
        end_share=[0.0, 0.25, 0.75],
        **changes,
    )


def test_progress_line_names_every_health_figure():
    line = progress_line([row(1), row(2)], PROGRESS)
    assert line.split("  ") == [
        "update 2/40",
        "steps 2,000",
        "54,321 steps/s",
        "eta 1:02:05",
        "return 1.500",
        "kl 1.2e-02",
        "clip 0.100",
        "entropy 1.250",
        "ev 0.50",
        "lr 3.00e-04",
    ]


def test_return_is_the_mean_over_the_chunks_episodes_and_undefined_without_any():
    rows = [
        row(1, episodes=1, episode_reward=4.0),
        row(2, episodes=3, episode_reward=0.0),
        row(3, episodes=0, episode_reward=NAN),
    ]
    assert "return 1.000" in progress_line(rows, PROGRESS)
    none = progress_line([row(3, episodes=0, episode_reward=NAN, explained_variance=NAN)], PROGRESS)
    assert "return n/a" in none
    assert "ev n/a" in none


def test_a_learner_that_reports_little_gets_a_short_line():
    short = {
        name: value for name, value in row(1).items() if name not in ("episodes", "episode_reward")
    }
    assert progress_line([short]) == "update 1/40  steps 1,000  54,321 steps/s  eta 1:02:05"


def test_steps_of_one_agent_are_told_from_the_speed_of_all():
    many = {"finite/each": [1.0] * 8}
    parts = progress_line([row(1) | many]).split("  ")
    assert parts[1:3] == ["steps 1,000 of each of 8 agents", "54,321 steps/s together"]


def test_jsonl_has_one_row_per_update_and_null_for_undefined(tmp_path):
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write([row(1), row(2, episode_reward=NAN, action_share=[NAN, 1.0])])
    sink.message("not data")
    sink.close()
    lines = path.read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == [1, 2]
    assert "NaN" not in lines[1]
    assert json.loads(lines[1])["episode_reward"] is None
    assert json.loads(lines[1])["action_share"] == [None, 1.0]
    assert json.loads(lines[0])["finite"] is True


def test_resuming_drops_the_torn_line_and_the_rows_to_be_repeated(tmp_path):
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write([row(i) for i in range(1, 6)])
    sink.close()
    digests.forget(path)  # a process that is killed notes no digest
    with path.open("a") as file:
        file.write('{"update": 6, "st')  # killed here
    assert [r["update"] for r in read_rows(path)] == [1, 2, 3, 4, 5]
    sink = JsonlSink(path, resume_update=3)
    sink.write([row(4), row(5)])
    sink.close()
    assert [r["update"] for r in read_rows(path)] == [1, 2, 3, 4, 5]
    assert {each.name for each in tmp_path.iterdir()} == {digests.FILE, path.name}


def test_a_new_run_starts_a_new_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for _ in range(2):
        sink = JsonlSink(path)
        sink.write([row(1)])
        sink.close()
    assert len(read_rows(path)) == 1


def test_a_line_that_is_not_json_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"update": 1}\nrubbish\n{"update": 2}\n')
    with refused("metrics.jsonl: line 2 ", kind=DataError):
        read_rows(path)


def test_run_log_appends_stamped_lines(tmp_path):
    path = tmp_path / "run.log"
    for text in ("first", "second\nthird"):
        sink = LogSink(path, columns=PROGRESS)
        sink.message(text)
        sink.close()
    sink = LogSink(path, columns=PROGRESS)
    sink.write([row(1)])
    sink.close()
    lines = path.read_text().splitlines()
    assert [re.sub(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", "", line) for line in lines] == [
        "first",
        "second",
        "third",
        progress_line([row(1)], PROGRESS),
    ]


TAGS = {
    "episode_trades": "rollout",
    "end_share": "rollout",
    "illegal_executed": "rollout",
    "hit_rate": "rollout",
    "seconds": "time",
    "update": "time",
    "approx_kl/each": "train",
    "my_loss": "train",
}


def read_events(data):
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.record_writer import masked_crc32c

    events = []
    while data:  # TFRecord: length, its checksum, record, its checksum
        length = int.from_bytes(data[:8], "little")
        record = data[12 : 12 + length]
        assert masked_crc32c(record) == int.from_bytes(data[12 + length : 16 + length], "little")
        events.append(Event.FromString(record))
        data = data[16 + length :]
    return events


def test_tags_are_grouped():
    """What the environment reports, what the loop reports, and all else, which is the learner's
    own.
    """
    assert {name: name_tag(name).partition("/")[0] for name in TAGS} == TAGS


def test_tensorboard_writes_scalars_by_steps_and_hides_what_did_not_happen(tmp_path):
    pytest.importorskip("tensorboardX")
    sink = TensorBoardSink(tmp_path, names={"action_share": ["HOLD", "BUY"]})
    sink.write([row(1), row(2, episode_reward=NAN)])
    sink.figures({"eval/test/greedy/net_profit": -12.5, "eval/undefined": NAN}, 1000)
    sink.rewind(1, 1000)
    sink.close()
    events = read_events(next(tmp_path.iterdir()).read_bytes())
    found = {
        (value.tag, event.step): value.simple_value
        for event in events
        for value in event.summary.value
    }
    assert found["rollout/episode_reward", 1000] == 1.5
    assert found["rollout/action_share/BUY", 2000] == 0.75
    assert ("rollout/episode_reward", 2000) not in found
    tags = {tag for tag, _ in found}
    assert {tag.partition("/")[0] for tag in tags} == {"rollout", "train", "time", "eval"}
    assert not {"eval/undefined", "time/steps", "train/steps", "train/total_updates"} & tags
    last = events[-1]
    assert (last.session_log.status, last.step) == (last.session_log.START, 1001)


def test_pictures_and_hyperparameters_decode_by_the_published_format(tmp_path):
    """With the message classes of TensorBoard and of its hparams plugin."""
    pytest.importorskip("tensorboardX")
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData

    png = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\x02\x80\0\0\x01\xe0\x08\x06\0\0\0\0\0\0\0rest"  # 640 x 480
    (tmp_path / "a.png").write_bytes(png)
    sink = TensorBoardSink(tmp_path / "board")
    sink.settings(
        {"ppo.learning_rate": 3e-4, "seed": 2, "env.task": "manage", "train.tensorboard": True},
        ["eval/a"],
    )
    sink.plot("eval/test/equity", tmp_path / "a.png", 5000)
    with refused("expected a PNG", kind=ValueError):
        sink._writer.image("x", b"GIF89a", 1)
    sink.close()
    _, experiment, start, picture = read_events(next((tmp_path / "board").iterdir()).read_bytes())
    [value] = experiment.summary.value
    assert (value.tag, value.metadata.plugin_data.plugin_name) == (
        "_hparams_/experiment",
        "hparams",
    )
    found = HParamsPluginData.FromString(value.metadata.plugin_data.content).experiment
    assert [(info.name, info.type) for info in found.hparam_infos] == [
        ("ppo.learning_rate", 3),
        ("seed", 3),
        ("env.task", 1),
        ("train.tensorboard", 2),
    ]
    assert [info.name.tag for info in found.metric_infos] == ["eval/a"]
    [value] = start.summary.value
    assert value.tag == "_hparams_/session_start_info"
    held = HParamsPluginData.FromString(
        value.metadata.plugin_data.content
    ).session_start_info.hparams
    assert {name: getattr(held[name], held[name].WhichOneof("kind")) for name in held} == {
        "ppo.learning_rate": 3e-4,
        "seed": 2.0,
        "env.task": "manage",
        "train.tensorboard": True,
    }
    [value] = picture.summary.value
    assert (value.tag, picture.step) == ("eval/test/equity", 5000)
    image = value.image
    assert (image.width, image.height, image.colorspace, image.encoded_image_string) == (
        640,
        480,
        4,
        png,
    )


def test_panel_shows_what_the_policy_does_by_name():
    """Two episodes end in the first update, eight in the second: weights 0.2 and 0.8."""
    rows = [
        traded(1),
        traded(2, episodes=8, action_share=[0.75, 0.25])
        | {"end_share": [0.0, 0.0, 1.0], "illegal": 1},
    ]
    assert panel_line(rows, NAMES).split("  ") == [
        "",
        "actions % HOLD 50.0 BUY 50.0",
        "trades/episode 2.50",
        "ends % BUST 5.0 SESSION_END 95.0",
        "illegal 1",
    ]
    assert panel_line([traded(1, action_share=[1.0, 0.0])], NAMES).startswith(
        "  actions % HOLD 100.0  trades"
    )
    none = traded(1, episodes=0) | {"episode_trades": NAN, "end_share": [NAN] * 3}
    assert panel_line([none], NAMES).split("  ") == [
        "",
        "actions % HOLD 25.0 BUY 75.0",
        "trades/episode n/a",
        "ends % n/a",
        "illegal 0",
    ]
    assert panel_line([traded(1)], {}) == "  trades/episode 2.50  illegal 0"
    assert panel_line([row(1)], {}) == ""


def test_lists_are_written_by_name_where_names_are_known(tmp_path):
    path = tmp_path / "metrics.jsonl"
    each = {"action_share/each": [[0.5, 0.5], [0.0, 1.0]], "other": [1.0]}
    sink = JsonlSink(path, names=NAMES)
    sink.write([traded(1, **each), traded(2) | {"end_share": [NAN] * 3}])
    sink.close()
    first, second = read_rows(path)
    assert first["action_share"] == {"HOLD": 0.25, "BUY": 0.75}
    assert first["action_share/each"] == [{"HOLD": 0.5, "BUY": 0.5}, {"HOLD": 0.0, "BUY": 1.0}]
    assert first["other"] == [1.0]
    assert second["end_share"] == {"NONE": None, "BUST": None, "SESSION_END": None}
    JsonlSink(path, resume_update=1, names=NAMES).close()
    assert read_rows(path) == [first]
    with refused("zip", kind=ValueError):
        by_name(row(1, action_share=[1.0]), NAMES)


def test_a_rewound_file_loses_what_did_not_happen(tmp_path):
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.write([row(i) for i in range(1, 5)])
    sink.rewind(2, 2000)
    sink.write([row(3, entropy=9.0)])
    sink.close()
    assert [(r["update"], r["entropy"]) for r in read_rows(path)] == [
        (1, 1.25),
        (2, 1.25),
        (3, 9.0),
    ]
    assert {each.name for each in tmp_path.iterdir()} == {digests.FILE, path.name}


def test_event_files_decode_by_the_published_format(tmp_path):
    """Field by field with TensorBoard's message classes, and the checksum against RFC 3720's known
    answer.
    """
    pytest.importorskip("tensorboardX")
    assert (
        masked_crc32c(b"123456789")
        == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    )
    writer = EventWriter(tmp_path / "new")
    writer.scalars({"a b/é": 1.5, "/c": -2e300, "d": 0}, 2**40)
    writer.close()
    [path] = (tmp_path / "new").iterdir()
    first, second = read_events(path.read_bytes())
    assert (first.file_version, first.step) == ("brain.Event:2", 0)
    assert second.step == 2**40
    assert second.wall_time >= first.wall_time > 1.7e9
    assert [(value.tag, value.simple_value) for value in second.summary.value] == [
        ("a_b/é", 1.5),
        ("c", -math.inf),
        ("d", 0.0),
    ]


def test_a_resumed_run_adds_an_event_file_that_comes_later(tmp_path):
    """TensorBoard reads a directory's files by name: what the second file forgets must have been
    read.
    """
    for _ in range(12):
        writer = EventWriter(tmp_path)
        writer.scalars({"n": len(list(tmp_path.iterdir()))}, 1)
        writer.close()
    pytest.importorskip("tensorboardX")
    read = [
        read_events(path.read_bytes())[1].summary.value[0].simple_value
        for path in sorted(tmp_path.iterdir())
    ]
    assert read == list(range(1, 13))
