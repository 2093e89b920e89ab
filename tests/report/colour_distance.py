"""How different two colours look, to most people and to those who are colour blind.

CIEDE2000 as Sharma, Wu and Dalal give it (2005), on what Machado, Oliveira and Fernandes (2009) say is seen of a colour
where one kind of cone is missing. Contrast is that of WCAG 2.2.
"""

from typing import Final

import numpy as np

from dtbench.report.page.looks import luminance

_TO_XYZ: Final = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
_WHITE: Final = np.array([0.95047, 1.0, 1.08883])
SIGHTS: Final = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def distance(one: str, other: str, sight: str = "usual") -> float:
    """Return how far apart two colours are; about 1 is just seen."""
    return ciede2000(_to_lab(one, sight), _to_lab(other, sight))


def _to_lab(colour: str, sight: str) -> tuple[float, float, float]:
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    ratios = _TO_XYZ @ np.clip(SIGHTS[sight] @ linear, 0, 1) / _WHITE
    x, y, z = np.where(ratios > 216 / 24389, np.cbrt(ratios), (24389 / 27 * ratios + 16) / 116)
    return float(116 * y - 16), float(500 * (x - y)), float(200 * (y - z))


def ciede2000(one: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """Return the distance of two colours in L*a*b*."""
    mean_chroma = (np.hypot(*one[1:]) + np.hypot(*other[1:])) / 2
    stretch = 1.5 - 0.5 * np.sqrt(mean_chroma**7 / (mean_chroma**7 + 25.0**7))
    polar = []
    for lightness, a, b in (one, other):
        polar.append((lightness, np.hypot(stretch * a, b), np.degrees(np.arctan2(b, stretch * a)) % 360))
    (light_1, chroma_1, hue_1), (light_2, chroma_2, hue_2) = polar
    turn = (hue_2 - hue_1 + 180) % 360 - 180 if chroma_1 * chroma_2 else 0.0
    hue = (hue_1 + turn / 2) % 360 if chroma_1 * chroma_2 else hue_1 + hue_2
    light, chroma = (light_1 + light_2) / 2, (chroma_1 + chroma_2) / 2
    weights = ((0.17, 1, 30), (-0.24, 2, 0), (-0.32, 3, -6), (0.20, 4, 63))
    tint = 1 - sum(weight * np.cos(np.radians(times * hue - shift)) for weight, times, shift in weights)
    by_light = (light_2 - light_1) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    by_chroma = (chroma_2 - chroma_1) / (1 + 0.045 * chroma)
    by_hue = 2 * np.sqrt(chroma_1 * chroma_2) * np.sin(np.radians(turn / 2)) / (1 + 0.015 * chroma * tint)
    bend = 60 * np.exp(-(((hue - 275) / 25) ** 2))
    twist = -2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7)) * np.sin(np.radians(bend))
    return float(np.sqrt(by_light**2 + by_chroma**2 + by_hue**2 + twist * by_chroma * by_hue))
