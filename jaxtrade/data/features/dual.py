"""The twelve features of a symbol's decision bar that the task `allocate` shows, after
IntradayJules' feature map.

Its names and ours: returns 1/5/15 `return_N`, volatility 20 `volatility`, RSI-14 `rsi`, EMA ratios
12/26 `ema_N` (as the distance from the close), volume ratio `volume_ratio_20min`, Bollinger
position `bollinger_position`, momentum 10
`momentum`, VWAP ratio `price_to_vwap`, time of day `time_of_day`.
"""

from __future__ import annotations

DUAL_FEATURES: tuple[str, ...] = (
    "return_1",
    "return_5",
    "return_15",
    "volatility",
    "rsi",
    "ema_12",
    "ema_26",
    "volume_ratio_20min",
    "bollinger_position",
    "momentum",
    "price_to_vwap",
    "time_of_day",
)
