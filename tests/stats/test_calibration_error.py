"""The bins of a reliability diagram."""

import numpy as np

from automedeval.stats.calibration_error import reliability_bins


def test_a_decile_that_is_a_value_begins_its_bin() -> None:
    values = np.arange(21.0)  # the deciles are 0, 2, … 20
    bins = reliability_bins(values, values)
    assert [each["n"] for each in bins] == [2] * 9 + [3]
    assert [each["judge"] for each in bins] == [0.5, 2.5, 4.5, 6.5, 8.5, 10.5, 12.5, 14.5, 16.5, 19.0]
