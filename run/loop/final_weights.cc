#include "run/loop/final_weights.h"

#include <fmt/format.h>

#include "base/error.h"
#include "formats/hugging_face/hugging_face.h"
#include "formats/hugging_face/weights_folder.h"

namespace trident {
namespace {

void save(Stepper& stepper, const ProcessGroup& files, const std::string& directory,
          const HuggingFaceExtras& extras, RunReporter& reporter) {
  try {
    save_hugging_face(stepper.model(), files, directory, extras);
  } catch (const RequestError& error) {
    throw Error(error.what());  // the run has started: a problem now is a failure
  }
  reporter.wrote(directory);
}

}  // namespace

void save_final_weights(Stepper& stepper, const ProcessGroup& files, const std::string& directory,
                        const HuggingFaceExtras& extras, const TrainerHooks& hooks,
                        RunReporter& reporter) {
  if (reporter.leads() && hooks.folders) {
    try {
      if (const std::string what = hooks.folders->held->hold_saves(); !what.empty())
        reporter.message(what);
    } catch (const RequestError& error) {
      throw Error(error.what());
    }
  }
  save(stepper, files, directory, extras, reporter);
  const std::string average = directory + "/ema";
  if (stepper.has_average()) {
    stepper.take_average();
    save(stepper, files, average, extras, reporter);
  } else if (reporter.leads() && !weights_in(average).empty()) {
    reporter.message(fmt::format(
        "warning: {} stays as it was: it is no average of the weights that are saved now",
        average));
  }
}

}  // namespace trident
