# SPDX-License-Identifier: MIT
"""A GPU without room and a GPU that fails in the middle (faulty.py)."""
import pytest

import program
from faulty import (ALPHA, SMALL, big_images, check_named, fail_each, has_real, needs_faulty, needs_library, pipe_faulty,
                    run_faulty, want_of, warnings)
from folders import image

pytestmark = needs_faulty


@pytest.mark.parametrize("alpha", ALPHA)
@pytest.mark.parametrize("where", (1, 5))
def test_lost_in_the_middle_with_all_goes_on_on_the_cpu(box, batch, gpu, alpha, where):
    fault = f"{'trap' if gpu else 'lost'}={where}"
    done = run_faulty(box, gpu + fault, "--device=all", f"--alpha={alpha}", *SMALL)
    assert len(warnings(done.stderr)) == 1 and "continuing on the CPU" in warnings(done.stderr)[0]


@pytest.mark.parametrize("where", (1, 4))
def test_lost_in_the_middle_with_cuda_names_what_failed(box, batch, gpu, where):
    fault = f"{'trap' if gpu else 'lost'}={where}"
    done = run_faulty(box, gpu + fault, "--device=cuda", "--streams=2", *SMALL, code=1)
    check_named(box, done)
    assert (where == 1) <= (done.made == [])


def test_standard_input_is_not_lost_with_the_device(box, gpu):
    """The input cannot be read again: the CPU continues with the decoded image."""
    (box / "in").mkdir()
    (box / "in" / "a.png").write_bytes(image(3).data)
    assert pipe_faulty(gpu + ("trap=1" if gpu else "lost=1"), image(3).data) == want_of(box)["a.png"]


@pytest.mark.parametrize("alpha", ALPHA)
@pytest.mark.parametrize("asked, room", (("all", 32000), ("cuda", 100000)))
def test_little_room_means_smaller_groups(box, batch, alpha, asked, room):
    """There is room for each image, or for a few, but not for the groups that they come in."""
    done = run_faulty(box, f"room={room} streams=1048576", f"--device={asked}", f"--alpha={alpha}", "-j2")
    assert warnings(done.stderr) == []


@pytest.mark.parametrize("room,whole", ((1_280_000, True), (333_000, True), (300_000, False))[2 * program.is_sanitized():])
def test_a_image_without_room(box, room, whole):
    """The image is filtered plane by plane; if a plane is too large, by the CPU, or it fails with the reason."""
    big_images(box)
    done = run_faulty(box, f"room={room}", "--device=all")
    assert len(warnings(done.stderr)) == (0 if whole else 1)
    done = run_faulty(box, f"room={room}", "--device=cuda", code=0 if whole else 1)
    assert done.stderr.count("CUDA failed to allocate memory") == (0 if whole else 3)


@pytest.mark.parametrize("number", (1, 2, 3, 4, 9))
def test_memory_that_cannot_be_pinned(box, batch, gpu, number):
    """Only copies are slower then."""
    done = run_faulty(box, f"{gpu}pins={number}", "--device=cuda", *SMALL)
    assert warnings(done.stderr) == []


@pytest.mark.cuda
@pytest.mark.alone
@pytest.mark.parametrize("leave", (1, 4, 16, 40))
def test_somebody_else_has_the_devices_memory(box, leave):
    """CUDA itself finds only `leave` MiB free; 3 images of 3.6 MB need 16 MiB per stream and direction."""
    assert has_real()
    big_images(box, 1200, 1000)
    run_faulty(box, f"real hog={leave << 20}", "--device=all")
    done = run_faulty(box, f"real hog={leave << 20}", "--device=cuda", code=None)
    assert done.returncode == 0 or "CUDA failed to" in done.stderr


# One device, several, and one that takes a while to open.
@needs_library
@pytest.mark.parametrize("kind, plan, asked", (
    ("alloc", "", "cuda"), ("alloc", "room=5000", "all"),
    ("thread", "", "all"), ("thread", "lost=2", "cuda"), ("thread", "room=5000", "all"),
    ("alloc", "devices=2 0:lost=2", "all"),
    ("thread", "devices=2", "all"), ("thread", "devices=2 1:lost=2", "cuda:0,cuda:1"),
    ("alloc", "open=1", "all"), ("thread", "open=1", "all"), ("thread", "open=20", "all")))
def test_every_allocation_and_thread_fails_once_around_devices(box, plan, asked, kind):
    fail_each(box, kind, plan, f"--device={asked}", least=40 if kind == "alloc" else 6 if "devices" in plan else 4)
