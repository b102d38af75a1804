"""Rewards to gradients (CMAL Secs. 4.3-4.5).

Reading order: base.py, constant.py, self_critical.py, leave_one_out.py, counterfactual.py, all_action.py;
then those that swap noise: arsm.py, arsm_samples.py, arsm_local.py, arsm_joint.py, ars.py, ars_draw.py.
An outsider's estimator needs no entry here: it is named by its dotted path.
"""

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from hf_cmal.estimators.all_action import AllAction
from hf_cmal.estimators.ars import Ar, Ars
from hf_cmal.estimators.arsm_joint import JointArsm
from hf_cmal.estimators.arsm_local import Arsm
from hf_cmal.estimators.base import (
    Estimator,
    SamplingEstimator,
    StatefulEstimator,
    Surrogate,
    policy_gradient_loss,
)
from hf_cmal.estimators.constant import MovingAverage, NoBaseline
from hf_cmal.estimators.counterfactual import Counterfactual
from hf_cmal.estimators.leave_one_out import LeaveOneOut
from hf_cmal.estimators.self_critical import SelfCritical

ESTIMATORS: dict[str, Callable[..., Estimator]] = {
    "none": NoBaseline,
    "moving_average": MovingAverage,
    "self_critical": SelfCritical,
    "leave_one_out": LeaveOneOut,
    "counterfactual": Counterfactual,
    "all_action": AllAction,
    "ar": Ar,
    "ars": Ars,
    "arsm": Arsm,
    "arsm_joint": JointArsm,
}


def get_estimator(name: str, **options: Any) -> Estimator:
    """Makes an estimator by its name in `ESTIMATORS`, or by the dotted path of its class.

    Args:
        name: e.g. `"counterfactual"`, or `"my_package.my_module.MyEstimator"`.
        options: keyword arguments of the class.

    Raises:
        ValueError: if there is no such estimator, or it has no such option; the message names those there
        are.

    Example:

        >>> get_estimator("counterfactual", top_k=1).top_k
        1
    """
    estimator_class = ESTIMATORS[name] if name in ESTIMATORS else _import_estimator(name)
    parameters = inspect.signature(estimator_class).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        for option in options:
            if option not in parameters:
                known = ", ".join(parameters) or "none"
                raise ValueError(f"estimator {name!r} has no option {option!r}; its options: {known}")
    return estimator_class(**options)


def _import_estimator(path: str) -> Callable[..., Estimator]:
    module_name, _, class_name = path.rpartition(".")
    if not module_name:
        raise ValueError(
            f"unknown estimator {path!r}; known: {', '.join(ESTIMATORS)}, or the dotted path of a class "
            "such as 'my_package.my_module.MyEstimator'"
        )
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"estimator {path!r}: {error}; known names: {', '.join(ESTIMATORS)}") from error
    if class_name not in vars(module):
        raise ValueError(f"estimator {path!r}: module {module_name!r} has no {class_name!r}")
    estimator_class: Callable[..., Estimator] = vars(module)[class_name]
    return estimator_class


__all__ = [
    "ESTIMATORS",
    "Estimator",
    "SamplingEstimator",
    "StatefulEstimator",
    "Surrogate",
    "get_estimator",
    "policy_gradient_loss",
]
