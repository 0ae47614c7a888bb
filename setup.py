"""The packages of a distribution; all else stands in setup.cfg."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["maskpolicy", "maskpolicy.*"]),
        *("maskpolicy.policies", "maskpolicy.tasks", "maskpolicy.experiments"),  # see package_dir
    ]
)
