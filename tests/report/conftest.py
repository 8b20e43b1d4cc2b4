from __future__ import annotations

from tests.study.conftest import no_data_but_the_bundled  # noqa: F401 (a fixture for every test here)
