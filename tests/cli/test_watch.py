# SPDX-License-Identifier: MIT
"""--watch: images are filtered as they arrive in folders."""
import os
import signal

import pytest

import images
from folders import fill, image, is_embossed
from program import TIMEOUT, closing, run, stop, until
from watching import watch


def folders(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in", tmp_path / "out"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_arrivals_are_filtered_until_a_signal(tmp_path, device, number):
    source, target = folders(tmp_path)
    made = image()
    (source / "first.png").write_bytes(made.data)
    with watch(source, target, "--device", device) as watched:
        watched.has("first.png")
        (source / "second.png").write_bytes(made.data)
        watched.has("second.png")
        (source / "note.txt").write_bytes(b"no image")
        (tmp_path / "outside.png").write_bytes(made.data)
        os.rename(tmp_path / "outside.png", source / "renamed.png")
        watched.has("renamed.png")
        assert "3 done" in closing(watched.end(number))
    for name in ("first.png", "second.png", "renamed.png"):
        assert is_embossed(target / name, made)
    assert sorted(os.listdir(target)) == ["first.png", "renamed.png", "second.png"]


def test_a_file_is_read_when_it_is_complete(tmp_path):
    """Files that cp is still writing, begun before or after the start of the watch."""
    source, target = folders(tmp_path)
    made = image()
    with open(source / "before.png", "wb", buffering=0) as before:
        before.write(made.data[:500])
        with watch(source, target, "-v") as watched:
            with open(source / "after.png", "wb", buffering=0) as after:
                after.write(made.data[:700])
                (source / "marker.png").write_bytes(made.data)
                watched.has("marker.png")
                assert sorted(os.listdir(target)) == ["marker.png"]
                after.write(made.data[700:])
            watched.has("after.png")
            before.write(made.data[500:])
            before.close()
            watched.has("before.png")
            assert "3 done, 0 failed" in closing(watched.end())
    for name in ("before.png", "after.png"):
        assert is_embossed(target / name, made)


def test_editors_and_downloads(tmp_path):
    """Temporary names are not images; a file renamed over an image is a new version; one that vanishes is ignored."""
    source, target = folders(tmp_path)
    old, new = image(1), image(2, width=17, height=31)
    with watch(source, target) as watched:
        (source / "image.png").write_bytes(old.data)
        watched.has("image.png")
        for temporary in ("image.png.part", ".image.png.swp", "image.png~"):
            (source / temporary).write_bytes(new.data)
            os.rename(source / temporary, source / "image.png")
        stop(watched.process)  # so that it sees both together
        (source / "fleeting.png").write_bytes(old.data)
        os.remove(source / "fleeting.png")
        watched.process.send_signal(signal.SIGCONT)
        until(lambda: images.read(target / "image.png").shape[1:] == (31, 17), watched.process)
        assert ", 0 failed" in closing(watched.end())
    assert os.listdir(target) == ["image.png"] and is_embossed(target / "image.png", new)


def test_several_steps_of_one_file_are_one_image(tmp_path):
    source, target = folders(tmp_path)
    made = image()
    with watch(source, target) as watched:
        stop(watched.process)  # so that all events wait together
        for part in range(20):
            (source / "image.png").write_bytes(made.data[:100 * part])
        (source / "image.png").write_bytes(made.data)
        os.kill(watched.process.pid, signal.SIGCONT)
        watched.has("image.png")
        assert "1 done, 0 failed" in closing(watched.end())


def test_folders_that_arrive(tmp_path):
    """With --recursive: folders made, moved in with images, moved away, and excluded."""
    source, target = folders(tmp_path)
    made = image()
    with watch(source, target, "--recursive", "--exclude", "raw") as watched:
        (source / "a" / "b").mkdir(parents=True)
        (source / "a" / "b" / "1.png").write_bytes(made.data)
        watched.has("a/b/1.png")
        (tmp_path / "whole" / "deep").mkdir(parents=True)
        (tmp_path / "whole" / "2.png").write_bytes(made.data)
        (tmp_path / "whole" / "deep" / "3.png").write_bytes(made.data)
        os.rename(tmp_path / "whole", source / "whole")
        watched.has("whole/2.png", "whole/deep/3.png")
        (source / "raw").mkdir()
        (source / "raw" / "4.png").write_bytes(made.data)
        os.rename(source / "a", tmp_path / "away")
        (tmp_path / "away" / "b" / "5.png").write_bytes(made.data)
        (source / "whole" / "deep" / "6.png").write_bytes(made.data)
        watched.has("whole/deep/6.png")
        os.rename(source / "whole" / "deep", source / "other")
        watched.has("other/3.png", "other/6.png")
        (source / "other" / "7.png").write_bytes(made.data)
        watched.has("other/7.png")
        watched.end()
    found = sorted(str(p.relative_to(target)) for p in target.rglob("*.png"))
    assert found == ["a/b/1.png", "other/3.png", "other/6.png", "other/7.png", "whole/2.png", "whole/deep/3.png",
                     "whole/deep/6.png"]


def test_a_restart_with_a_journal_does_only_what_is_new(tmp_path):
    source, target = folders(tmp_path)
    journal = tmp_path / "journal"
    names = [f"{i}.png" for i in range(5)]
    fill(source, *names)
    new = image(9)
    with watch(source, target, "--resume", journal) as watched:
        watched.has(*names)
        assert "5 done" in closing(watched.end())
    (source / "new.png").write_bytes(image().data)
    (source / "2.png").write_bytes(new.data)
    with watch(source, target, "--resume", journal) as watched:
        watched.has("new.png")
        until(lambda: is_embossed(target / "2.png", new), watched.process)
        assert "2 done, 0 failed, 4 skipped" in closing(watched.end())


def test_dropped_events(tmp_path):
    """More events than the system keeps: the folder is listed again."""
    source, target = folders(tmp_path)
    with open("/proc/sys/fs/inotify/max_queued_events") as file:
        most = int(file.read())
    if most > 20000:
        pytest.skip(f"the system keeps {most} events")
    made = image(width=2, height=2)
    with watch(source, target) as watched:
        (source / "first.png").write_bytes(made.data)
        watched.has("first.png")
        stop(watched.process)
        for i in range(most + 10):  # equal events in a row count as one
            os.close(os.open(source / "ab"[i % 2], os.O_WRONLY | os.O_CREAT))
        for i in range(50):
            (source / f"{i}.png").write_bytes(made.data)
        os.kill(watched.process.pid, signal.SIGCONT)
        watched.has(*(f"{i}.png" for i in range(50)))
        assert ", 0 failed" in closing(watched.end())


@pytest.mark.parametrize("versions, failed", (("xg", 0), ("xxgx", 1), ("xxxg", 0), ("xx", 1)))
def test_the_last_version_decides(tmp_path, versions, failed):
    """A half-written file that was complete soon after counted as failed, and the watch ended in exit code 1."""
    source, target = folders(tmp_path)
    made, report = image(), tmp_path / "report.jsonl"
    with watch(source, target, "--report", report) as watched:
        for i, version in enumerate(versions):
            (source / "image.png").write_bytes(made.data[:-40] if version == "x" else made.data)
            until(lambda: report.read_bytes().count(b'"failed"') == versions[:i + 1].count("x"), watched.process)
            until(lambda: version == "x" or (target / "image.png").exists(), watched.process)
        assert f"{versions.count('g')} done, {failed} failed" in closing(watched.end(code=failed))


def test_the_end_of_a_watched_folder(tmp_path):
    source, target = folders(tmp_path)
    with watch(source, target) as watched:
        (source / "image.png").write_bytes(image().data)
        watched.has("image.png")
        os.remove(source / "image.png")
        os.rmdir(source)
        _, err = watched.process.communicate(timeout=TIMEOUT)
        assert watched.process.returncode == 1 and f"{source}: the folder was removed" in err.decode()


def test_two_folders(tmp_path):
    made = image()
    for name in "ab":
        (tmp_path / name).mkdir()
    target = tmp_path / "out"
    with watch(tmp_path / "a", target, tmp_path / "b") as watched:
        for name in "ab":
            (tmp_path / name / "image.png").write_bytes(made.data)
        watched.has("a/image.png", "b/image.png")
        watched.end()


@pytest.mark.parametrize("options, said", [
    (["--in-place", "in"], "--watch"),
    (["--files-from", "list", "out"], "--watch"),
    (["--dry-run", "in", "out"], "--watch"), (["--limit=2", "in", "out"], "--watch and --limit cannot"),  # took 3, without the first
    (["in/a.png", "out"], "--watch takes folders; in/a.png is a file"),
    (["absent", "out"], "--watch takes folders; absent is not there"),
    (["--recursive", "in", "."], "may lie inside the other"),
])
def test_what_cannot_be_watched(tmp_path, options, said):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.png").write_bytes(image().data)
    result = run("emboss", "--watch", *options, code=2, cwd=tmp_path)
    assert said in result.err
