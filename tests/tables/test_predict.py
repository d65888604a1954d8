"""Names of the columns of predictions."""

import pytest

from ncai.tables import predict as table_predict


@pytest.mark.parametrize(
    ("share", "name"),
    [
        *((0.05, "05"), (0.5, "50"), (0.95, "95"), (0.975, "97.5"), (0.001, "00.1")),
        *((0.9999, "99.99"), (0.0001, "00.01"), (1e-7, "00.00001"), (0.07, "07")),
        *((0.1234567, "12.34567"), (0.12345678, "12.345678")),
    ],
)
def test_columns_of_levels_are_named_to_the_last_digit(share, name):
    assert table_predict._percent(share) == name
