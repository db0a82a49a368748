// The lines with which a run begins: the checkpoint that it resumes from, the parts of it that are
// left out, and the differences that may show in its numbers.
#pragma once

#include <map>
#include <string>

#include "engine/stepper.h"
#include "run/loop/run_reporter.h"
#include "run/loop/training_inputs.h"

namespace trident {

// `made_by`: RunSaver::made_by(). `reading_seconds`: of the checkpoint.
void report_start(const TrainingInputs&, Stepper&,
                  const std::map<std::string, std::string>& made_by, double reading_seconds,
                  const RunReporter&);

}  // namespace trident
