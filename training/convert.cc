#include "training/convert.h"

#include "core/file.h"
#include "parallel/transport/transport.h"
#include "training/from_config.h"
#include "training/generate.h"
#include "training/hugging_face.h"

namespace trident {

void convert_weights(const ArchitectureSet& architectures, const std::string& from,
                     const std::string& to) {
  const Config config = config_of_directory(architectures, from);
  require_output_directory(to);
  const auto device = make_cpu_device();
  run_local(1, {}, [&](Transport& transport) {
    Context context(*device, 1);
    RankModel model(context, config, *architectures.at(config.model.architecture),
                    schedule_of(config),
                    make_topology(transport.world(), RankGrid(1, 1, 1), transport.nodes()),
                    RankModel::Purpose::inference);
    load_hugging_face(model, from);
    save_hugging_face(model, to);
  });
}

}  // namespace trident
