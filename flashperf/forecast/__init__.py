"""The pipeline's times as roofs predict them: on a GPU that isn't here, and on this CPU to see how far it holds."""

from flashperf.forecast.accuracy import Accuracy, check_accuracy
from flashperf.forecast.pipeline import Forecast, ForecastShare, forecast_pipeline

__all__ = ["Accuracy", "Forecast", "ForecastShare", "check_accuracy", "forecast_pipeline"]
