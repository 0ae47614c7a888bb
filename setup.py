"""The packages of a distribution, and the README for its page; all else stands in setup.cfg."""

import re
from pathlib import Path

from setuptools import find_packages, setup

PAGES = "https://github.com/maskpolicy/maskpolicy/blob/main/"
PICTURES = "https://raw.githubusercontent.com/maskpolicy/maskpolicy/main/"
README = Path(__file__).with_name("README.md").read_text(encoding="utf-8")

setup(
    packages=[
        *find_packages(include=["maskpolicy", "maskpolicy.*"]),
        *("maskpolicy.policies", "maskpolicy.tasks", "maskpolicy.experiments"),  # see package_dir
    ],
    # links within the repository lead nowhere from the page of a package index
    long_description=re.sub(
        r"(!?)(\[[^\]]*\]\()(?!\w+:|#)",
        lambda link: link[1] + link[2] + (PICTURES if link[1] else PAGES),
        README,
    ),
)
