"""Whatever file comes: an upright RGB picture, or an error that says what to do."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from patchlight.core.errors import PictureError
from patchlight.core.pictures import find_pictures, read_picture

SIZE = (23, 17)


def colours(size: tuple[int, int] = SIZE) -> np.ndarray:
    x, y = np.meshgrid(np.linspace(0, 255, size[0]), np.linspace(0, 255, size[1]))
    return np.stack([x, y, 255 - x], axis=-1).round().astype(np.uint8)


def photo(size: tuple[int, int] = SIZE) -> Image.Image:
    return Image.fromarray(colours(size))


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "ppm"])
def test_lossless_files_come_back_as_they_were(tmp_path: Path, suffix: str) -> None:
    photo().save(tmp_path / f"a.{suffix}")
    picture = read_picture(str(tmp_path / f"a.{suffix}"))
    assert (picture.name, picture.notes, picture.image.mode) == (f"a.{suffix}", (), "RGB")
    assert np.array_equal(np.asarray(picture.image), colours())


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "1", "YCbCr", "LAB", "HSV"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    picture = read_picture(photo().convert("RGB").convert(mode) if mode != "LAB" else Image.new("LAB", SIZE, (128, 0, 0)))
    assert picture.image.mode == "RGB"
    assert picture.image.size == SIZE
    assert picture.notes == ()


def test_a_given_image_is_left_alone() -> None:
    given = photo()
    picture = read_picture(given)
    picture.image.paste("red", (0, 0, 5, 5))
    assert np.array_equal(np.asarray(given), colours())
    assert picture.name == "picture"


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path: Path, orientation: int) -> None:
    undo = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # the transposition that a camera of this orientation made
    marked = Image.new("RGB", (32, 16), "white")
    marked.paste("red", (0, 0, 8, 8))
    stored = marked if orientation == 1 else marked.transpose(Image.Transpose(undo[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored.save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(np.asarray(read_picture(tmp_path / "a.png").image), np.asarray(marked))


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_transparent_pixels_are_laid_on_white(mode: str) -> None:
    image = Image.new(mode, (4, 4), (0, 0, 0, 255) if mode == "RGBA" else (0, 255))
    assert read_picture(image).notes == ()
    image.putpixel((1, 1), (0, 0, 0, 0) if mode == "RGBA" else (0, 0))
    picture = read_picture(image)
    assert picture.notes == ("transparent pixels laid on white",)
    assert picture.image.getpixel((1, 1)) == (255, 255, 255)
    assert picture.image.getpixel((0, 0)) == (0, 0, 0)


def test_a_transparent_palette_is_laid_on_white(tmp_path: Path) -> None:
    image = photo().convert("P")
    image.save(tmp_path / "a.png", transparency=image.getpixel((3, 3)))
    picture = read_picture(tmp_path / "a.png")
    assert picture.image.getpixel((3, 3)) == (255, 255, 255)
    assert picture.notes == ("transparent pixels laid on white",)


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_sixteen_bits_are_divided(tmp_path: Path, suffix: str) -> None:
    values = np.array([[0, 257, 514], [32896, 65278, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / f"a.{suffix}")
    picture = read_picture(tmp_path / f"a.{suffix}")
    assert np.asarray(picture.image)[:, :, 1].tolist() == [[0, 1, 2], [128, 254, 255]]
    assert picture.notes == ("16 bits divided by 257 to 8 bits",)


def test_big_endian_sixteen_bits_are_read_the_right_way_round() -> None:
    picture = read_picture(Image.frombytes("I;16B", (2, 1), np.array([0, 65535], dtype=">u2").tobytes()))
    assert np.asarray(picture.image)[0, :, 0].tolist() == [0, 255]


@pytest.mark.parametrize("kind", [np.int32, np.float32])
def test_thirty_two_bits_are_stretched(tmp_path: Path, kind: type) -> None:
    Image.fromarray(np.array([[-10, 0], [10, 30]], dtype=kind)).save(tmp_path / "a.tif")
    picture = read_picture(tmp_path / "a.tif")
    assert np.asarray(picture.image)[:, :, 0].tolist() == [[0, 64], [128, 255]]
    assert picture.notes == ("32-bit values from -10 to 30 stretched to 8 bits",)


def test_values_that_are_no_numbers_and_constants_do_no_harm() -> None:
    odd = np.array([[np.nan, 0], [np.inf, 2]], dtype=np.float32)
    assert np.asarray(read_picture(Image.fromarray(odd)).image)[:, :, 0].tolist() == [[0, 0], [255, 255]]
    assert not np.asarray(read_picture(Image.fromarray(np.full((2, 2), 7.0, np.float32))).image).any()
    assert not np.asarray(read_picture(Image.fromarray(np.full((2, 2), np.nan, np.float32))).image).any()


@pytest.mark.parametrize("suffix", ["gif", "webp", "tif"])
def test_the_first_of_several_frames(tmp_path: Path, suffix: str) -> None:
    frames = [Image.new("RGB", SIZE, c) for c in ("red", "lime", "blue")]
    frames[0].save(tmp_path / f"a.{suffix}", save_all=True, append_images=frames[1:])
    picture = read_picture(tmp_path / f"a.{suffix}")
    assert picture.notes == ("the first of 3 frames",)
    assert np.asarray(picture.image)[0, 0].argmax() == 0


@pytest.mark.parametrize("shape", [(17, 23), (17, 23, 1), (17, 23, 3), (17, 23, 4)])
def test_arrays(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    picture = read_picture(values)
    assert (picture.image.mode, picture.image.size, picture.name) == ("RGB", SIZE, "array")
    if shape[-1] == 3:
        assert np.array_equal(np.asarray(picture.image), values)
        assert np.array_equal(np.asarray(read_picture(values[::-1, ::2]).image), values[::-1, ::2])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((4, 4, 3), np.float32), r"must be uint8 .* but float32 \(4, 4, 3\) came\. Multiply by 255"),
        (np.zeros((4, 4), np.int64), r"int64 \(4, 4\) came\. Convert it with \.astype"),
        (np.zeros((3, 8, 8), np.uint8), r"but uint8 \(3, 8, 8\) came\. Put the channels last"),
        (np.zeros((2, 8, 8, 3), np.uint8), r"uint8 \(2, 8, 8, 3\) came\. .*one picture at a time"),
        (np.zeros((0, 8, 3), np.uint8), r"not empty, but uint8 \(0, 8, 3\) came"),
    ],
)
def test_wrong_arrays(values: np.ndarray, message: str) -> None:
    with pytest.raises(PictureError, match=message):
        read_picture(values)


def test_something_else_altogether() -> None:
    with pytest.raises(PictureError, match=r"a PIL image or a uint8 array .* but a list came"):
        read_picture([1, 2])  # type: ignore[arg-type]


def test_an_image_without_pixels() -> None:
    with pytest.raises(PictureError, match="picture is 0 x 4 pixels, but at least one pixel"):
        read_picture(Image.new("RGB", (0, 4)))


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "gif", "tif"])
def test_cut_off_files(tmp_path: Path, suffix: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (99, 99, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / f"whole.{suffix}")
    data = (tmp_path / f"whole.{suffix}").read_bytes()
    (tmp_path / f"cut.{suffix}").write_bytes(data[: len(data) // 2])
    with pytest.raises(PictureError, match=rf"cut\.{suffix} (cannot be decoded, so it is probably cut off|is not a picture)"):
        read_picture(tmp_path / f"cut.{suffix}")


def test_a_cut_off_image_that_was_opened_by_others(tmp_path: Path) -> None:
    photo((300, 300)).save(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:2000])
    with Image.open(tmp_path / "a.jpg") as opened, pytest.raises(PictureError, match=r"a\.jpg cannot be decoded"):
        read_picture(opened)


def test_files_that_are_no_pictures(tmp_path: Path) -> None:
    (tmp_path / "notes.jpg").write_text("not a picture")
    (tmp_path / "empty.png").touch()
    with pytest.raises(PictureError, match=r"notes\.jpg is not a picture that Pillow can read: .*convert it to PNG or JPEG"):
        read_picture(tmp_path / "notes.jpg")
    with pytest.raises(
        PictureError, match=r"empty\.png is empty \(0 bytes\), but a picture was expected. Fetch or copy it again"
    ):
        read_picture(tmp_path / "empty.png")
    with pytest.raises(PictureError, match="is a folder, but a picture was expected"):
        read_picture(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(PictureError, match=r"pipe\.png is neither a file nor a folder, but a picture was expected"):
        read_picture(tmp_path / "pipe.png")


def test_missing_files_suggest_their_neighbours(tmp_path: Path) -> None:
    photo().save(tmp_path / "tabby_cat.png")
    with pytest.raises(PictureError, match=r"There is no file .*taby_cat\.png\. Did you mean 'tabby_cat\.png'\?"):
        read_picture(tmp_path / "taby_cat.png")
    with pytest.raises(PictureError, match=r"There is no file .*zebra\.jpg\. Check the path; .* has 1 entries"):
        read_picture(tmp_path / "zebra.jpg")
    with pytest.raises(PictureError, match=r"Its folder .*nowhere does not exist either"):
        read_picture(tmp_path / "nowhere" / "a.png")


@pytest.mark.parametrize("path", ["a" * 5000, "a\0b"])
def test_impossible_paths(path: str) -> None:
    with pytest.raises(PictureError, match=r"cannot be opened|There is no file"):
        read_picture(path)


def test_decompression_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo((40, 40)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_picture(tmp_path / "a.png").image.size == (40, 40)  # above the warning, below the error
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 700)
    with pytest.raises(PictureError, match=r"a\.png has more pixels than the 1,400 that Pillow takes for safe\. Scale"):
        read_picture(tmp_path / "a.png")


@pytest.fixture
def album(tmp_path: Path) -> Path:
    for name in ("b.jpg", "a.PNG", "deep/er/c.webp", "deep/[1].png", "readme.txt", ".hidden.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "void").mkdir()
    return tmp_path


def names(found: list[Path], album: Path) -> list[str]:
    return [p.relative_to(album).as_posix() for p in found]


def test_folders_files_and_globs(album: Path) -> None:
    everything = ["a.PNG", "b.jpg", "deep/[1].png", "deep/er/c.webp"]
    assert names(find_pictures([album]), album) == everything
    assert names(find_pictures(album), album) == everything
    assert names(find_pictures([f"{album}/*.jpg", f"{album}/**/*.webp"]), album) == ["b.jpg", "deep/er/c.webp"]
    assert names(find_pictures([f"{album}/*"]), album) == everything
    assert names(find_pictures([album / "readme.txt"]), album) == ["readme.txt"]
    assert names(find_pictures([album / "deep" / "[1].png"]), album) == ["deep/[1].png"]


def test_the_order_is_kept_and_doubles_are_dropped(album: Path) -> None:
    given = [album / "b.jpg", album, album / "deep" / ".." / "b.jpg"]
    assert names(find_pictures(given), album) == ["b.jpg", "a.PNG", "deep/[1].png", "deep/er/c.webp"]


def test_patterns_that_match_nothing(album: Path) -> None:
    with pytest.raises(PictureError, match=r"The pattern '.*\*\.gif' matches nothing"):
        find_pictures([album / "b.jpg", f"{album}/*.gif"])
    with pytest.raises(
        PictureError, match=r"The pattern '.*\*\.txt' matches 1 names, none of them a picture\. Pictures end in \.jpg"
    ):
        find_pictures([f"{album}/*.txt"])
    with pytest.raises(PictureError, match=r"The folder .*void has no pictures in it"):
        find_pictures([album / "void"])
    with pytest.raises(PictureError, match=r"There is no file .*c\.jpg\. Did you mean 'b\.jpg'"):
        find_pictures([album / "c.jpg"])
