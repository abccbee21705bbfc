"""Triangles to pixels, in NumPy: a depth buffer, one light, shadows on the ground. No screen, no driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

SUN = np.array([0.35, -0.5, 1.0]) / np.linalg.norm([0.35, -0.5, 1.0])
"""The direction to the light, in the world."""
SKY, TILES = np.array([0.97, 0.98, 1.0]), np.array([[0.90, 0.91, 0.93], [0.84, 0.86, 0.89]])
CHUNK = 4_000_000
"""Pixels that are looked at together."""
_FAR = np.uint64(0xFFFFFFFFFFFFFFFF)


@dataclass(frozen=True)
class Camera:
    """A pinhole."""

    position: np.ndarray
    look_at: np.ndarray
    field: float = np.deg2rad(40.0)
    """Angle of view from top to bottom [rad]."""

    @property
    def axes(self) -> np.ndarray:
        """To the right, down and forward, as rows; z is up in the world."""
        forward = self.look_at - self.position
        forward = forward / np.linalg.norm(forward)
        right = np.cross(forward, [0.0, 0.0, 1.0])
        length = np.linalg.norm(right)
        right = right / length if length > 1e-6 else np.array([0.0, -1.0, 0.0])
        return np.stack([right, np.cross(forward, right), forward])


class Soup(NamedTuple):
    """Triangles in the world."""

    corners: np.ndarray
    """Shape `(f, 3, 3)` [m]."""
    colors: np.ndarray
    """Red, green, blue and opacity, shape `(f, 4)`."""
    over: np.ndarray
    """Whether they are drawn over all others and cast no shadow, as what lies inside a robot is, shape `(f,)`."""


def draw(soup: Soup, camera: Camera, width: int, height: int, ground: float | None, tile: float) -> np.ndarray:
    """A picture, shape `(height, width, 3)`, bytes; each pixel the mean of four. What is not opaque shows what is
    behind the nearest of it.

    **Arguments:** `ground`: its height [m], or none; `tile`: the edge of a tile of it [m].
    """
    w, h = 2 * width, 2 * height
    solid = soup.colors[:, 3] >= 0.99
    layers = (solid & ~soup.over, ~solid & ~soup.over, soup.over)
    image, depth = _background(camera, w, h, ground, tile, soup)
    for k, chosen in enumerate(layers):
        corners, colors = soup.corners[chosen], soup.colors[chosen]
        if not len(corners):
            continue
        which, z = _nearest(corners, camera, w, h)
        hit = (which >= 0) & (z < (np.inf if k == 2 else depth))
        opacity = colors[which[hit], 3:]
        image[hit] = opacity * _lit(corners, colors, camera)[which[hit]] + (1.0 - opacity) * image[hit]
        if k == 0:
            depth = np.where(hit, z, depth)
    image = image.reshape(height, 2, width, 2, 3).mean(axis=(1, 3))
    return np.clip(255.0 * image + 0.5, 0, 255).astype(np.uint8)


def _lit(corners: np.ndarray, colors: np.ndarray, camera: Camera) -> np.ndarray:
    """Colours of the triangles: the side one looks at, from the sun above and a little from the eye."""
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-30)
    ray = camera.position - corners[:, 0]
    ray /= np.maximum(np.linalg.norm(ray, axis=1, keepdims=True), 1e-30)
    facing = np.sum(normal * ray, axis=1)
    normal = normal * np.where(facing < 0, -1.0, 1.0)[:, None]
    bright = 0.42 + 0.45 * np.maximum(normal @ SUN, 0.0) + 0.16 * np.abs(facing) + 0.08 * normal[:, 2]
    return np.clip(colors[:, :3] * bright[:, None], 0.0, 1.0)


def _nearest(corners: np.ndarray, camera: Camera, w: int, h: int) -> tuple[np.ndarray, np.ndarray]:
    """For every pixel the triangle in front (-1: none) and its depth [m], shape `(h, w)` each.

    A triangle is looked for in the pixels of its bounding box. Behind a pinhole `1 / z` is linear in the picture; its
    bits and the triangle's number make one integer of which a pixel keeps the least.
    """
    seen = (corners - camera.position) @ camera.axes.T
    ahead = np.min(seen[:, :, 2], axis=1) > 1e-3
    number = np.flatnonzero(ahead)
    seen = seen[ahead]
    scale = 0.5 * h / np.tan(0.5 * camera.field)
    flat = seen[:, :, :2] / seen[:, :, 2:] * scale + 0.5 * np.array([w, h])
    inverse = 1.0 / seen[:, :, 2]
    low = np.clip(np.ceil(flat.min(axis=1) - 0.5), 0, [w, h]).astype(np.int64)
    high = np.clip(np.floor(flat.max(axis=1) - 0.5) + 1, 0, [w, h]).astype(np.int64)
    size = np.maximum(high - low, 0)
    area = size[:, 0] * size[:, 1]
    e1, e2 = flat[:, 1] - flat[:, 0], flat[:, 2] - flat[:, 0]
    twice = e1[:, 0] * e2[:, 1] - e1[:, 1] * e2[:, 0]
    kept = np.flatnonzero((area > 0) & (np.abs(twice) > 1e-12))
    buffer = np.full(w * h, _FAR)
    start = 0
    total = np.cumsum(area[kept])
    while start < len(kept):
        taken = total - (total[start - 1] if start else 0)
        end = max(start + 1, int(np.searchsorted(taken, CHUNK, side="right")))
        own = kept[start:end]
        k = np.repeat(own, area[own])
        place = np.arange(len(k)) - np.repeat(np.cumsum(area[own]) - area[own], area[own])
        x = low[k, 0] + place % size[k, 0]
        y = low[k, 1] + place // size[k, 0]
        dx, dy = x + 0.5 - flat[k, 0, 0], y + 0.5 - flat[k, 0, 1]
        b = (dx * e2[k, 1] - dy * e2[k, 0]) / twice[k]
        c = (e1[k, 0] * dy - e1[k, 1] * dx) / twice[k]
        inside = (b >= 0) & (c >= 0) & (b + c <= 1)
        k, b, c, x, y = k[inside], b[inside], c[inside], x[inside], y[inside]
        z = 1.0 / ((1.0 - b - c) * inverse[k, 0] + b * inverse[k, 1] + c * inverse[k, 2])
        key = (z.astype(np.float32).view(np.uint32).astype(np.uint64) << np.uint64(32)) | k.astype(np.uint64)
        np.minimum.at(buffer, y * w + x, key)
        start = end
    hit = buffer != _FAR
    which = np.where(hit, (buffer & np.uint64(0xFFFFFFFF)).astype(np.int64), -1)
    z = np.where(hit, (buffer >> np.uint64(32)).astype(np.uint32).view(np.float32), np.inf)
    which[hit] = number[which[hit]]
    return which.reshape(h, w), z.reshape(h, w)


def _background(
    camera: Camera, w: int, h: int, ground: float | None, tile: float, soup: Soup
) -> tuple[np.ndarray, np.ndarray]:
    """Sky, and ground of tiles that fade into it, with shadows; and the depth of it."""
    image, depth = np.tile(SKY, (h, w, 1)), np.full((h, w), np.inf)
    if ground is None or camera.position[2] <= ground:
        return image, depth
    scale = np.tan(0.5 * camera.field) / (0.5 * h)
    x, y = np.meshgrid((np.arange(w) + 0.5 - 0.5 * w) * scale, (np.arange(h) + 0.5 - 0.5 * h) * scale)
    ray = np.stack([x, y, np.ones_like(x)], axis=-1) @ camera.axes
    below = ray[..., 2] < -1e-6
    far = np.where(below, (ground - camera.position[2]) / np.where(below, ray[..., 2], -1.0), np.inf)
    place = camera.position[:2] + np.where(below, far, 0.0)[..., None] * ray[..., :2]
    even = np.floor(place / tile).astype(np.int64).sum(axis=-1) % 2
    distance = np.linalg.norm(place - camera.look_at[:2], axis=-1)
    clear = np.where(below, np.exp(-((distance / (14.0 * tile)) ** 2)), 0.0)[..., None]
    floor = TILES[even]
    cast = soup.corners[~soup.over & (soup.colors[:, 3] >= 0.99) & (soup.corners[:, :, 2].min(axis=1) > ground - 1e-3)]
    if len(cast):
        height = cast[:, :, 2:] - ground
        fallen = cast - height * SUN / SUN[2]
        floor = np.where((_nearest(fallen, camera, w, h)[0] >= 0)[..., None], 0.80 * floor, floor)
    return clear * floor + (1.0 - clear) * image, np.where(below, far, np.inf)
