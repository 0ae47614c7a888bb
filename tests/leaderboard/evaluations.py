"""Write small real logs of lm-evaluation-harness and inspect_ai, without a network.

Run by the Python that has both: python evaluations.py lm-eval|inspect FOLDER
"""

import json
import os
import sys
from pathlib import Path

CAPITALS = [("France", "Paris"), ("Italy", "Rome"), ("Norway", "Oslo"), ("Peru", "Lima")] * 3
SAMPLES = [
    {"question": f"{n}. Capital of {land}?", "choices": [city, "Bonn"], "gold": 0, "answer": city}
    for n, (land, city) in enumerate(CAPITALS)
]
COMMON = {"dataset_path": "json", "test_split": "test", "doc_to_text": "{{question}}"}
METRICS = {"aggregation": "mean", "higher_is_better": True}


def lm_eval(folder: Path) -> None:
    """Let two models of the harness answer choices, with two metrics, and free questions."""
    import lm_eval as harness
    from lm_eval.api.model import LM
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

    class Canned(LM):
        """A model that is right on every so many-th question."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

        def loglikelihood(self, requests):
            right = (int(each.args[0].partition(".")[0]) % self.step == 0 for each in requests)
            is_answer = (each.args[1].strip() != "Bonn" for each in requests)
            return [(-1.0 if a == b else -2.0, True) for a, b in zip(right, is_answer, strict=True)]

        def generate_until(self, requests):
            numbers = [int(each.args[0].partition(".")[0]) for each in requests]
            return [CAPITALS[n][1] if n % self.step == 0 else "Bonn" for n in numbers]

        def loglikelihood_rolling(self, requests):
            raise NotImplementedError

    data = folder / "capitals.jsonl"
    data.write_text("".join(f"{json.dumps(each)}\n" for each in SAMPLES))
    files = {"dataset_kwargs": {"data_files": {"test": str(data)}}}
    choices = {
        **COMMON,
        **files,
        "task": "capitals",
        "output_type": "multiple_choice",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "gold",
        "metric_list": [{"metric": name, **METRICS} for name in ("acc", "acc_norm")],
    }
    free = {
        **COMMON,
        **files,
        "task": "free_capitals",
        "output_type": "generate_until",
        "doc_to_target": "answer",
        "metric_list": [{"metric": "exact_match", **METRICS}],
        "filter_list": [
            {"name": "whole", "filter": [{"function": "take_first"}]},
            {
                "name": "capital-letter",
                "filter": [
                    {"function": "regex", "regex_pattern": "([A-Z])"},
                    {"function": "take_first"},
                ],
            },
        ],
    }
    manager = TaskManager(include_defaults=False)  # to read those takes seconds
    for name, step in (("org/good", 2), ("org/bad", 3)):
        tracker = EvaluationTracker(output_path=str(folder / "logs"))
        tracker.general_config_tracker.model_name = name
        tracker.general_config_tracker.model_name_sanitized = name.replace("/", "__")
        found = harness.simple_evaluate(
            Canned(step), tasks=[choices, free], log_samples=True, task_manager=manager
        )
        samples = found.pop("samples")
        tracker.save_results_aggregated(results=found, samples=samples)
        for task, rows in samples.items():
            tracker.save_results_samples(task_name=task, samples=rows)


def inspect(folder: Path) -> None:
    """Let two models answer in three epochs, and one fail."""
    from inspect_ai import Task
    from inspect_ai import eval as evaluate
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import includes, match

    samples = [
        Sample(id=f"q{n}", input=each["question"], target=each["answer"])
        for n, each in enumerate(SAMPLES)
    ]
    usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    for name, step in (("good", 2), ("bad", 3), ("broken", 0)):
        outputs = []
        for number, (_, city) in enumerate(CAPITALS * 3):
            text = f"It is {city if step and number % step == 0 else 'Bonn'}"
            outputs.append(ModelOutput.from_content(f"mockllm/{name}", text))
            outputs[-1].usage = usage
        model = get_model(f"mockllm/{name}", custom_outputs=outputs if step else [])
        task = Task(name="capitals", dataset=samples, scorer=[match(), includes()])
        evaluate(
            task, model=model, log_dir=str(folder / "logs"), epochs=3, display="none", max_samples=1
        )


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    {"lm-eval": lm_eval, "inspect": inspect}[sys.argv[1]](Path(sys.argv[2]))
