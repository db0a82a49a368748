// Replacing the model in a directory by a whole new one.
//
// A set of files is config.json, model.safetensors or shards with their index, and what goes along:
// set_companions. The new set is written into a folder inside the directory first. When it is
// whole, it is moved: config.json, without which nobody takes the directory for a model, is removed
// first and comes last, so whenever the process dies the directory holds the old set, or the new
// one, or none that would load; never parts of both. What dies between is finished by whoever saves
// there next, or by finish_save. Files that belong to no set stay as they are.
//
// A set that a run has saved says so in a file of its own, .trident-weights, which comes and goes
// with the set and names its weights and its tokenizer's files by size and time: of what somebody
// else copies over them it says nothing.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace trident {

// What else transformers reads beside weights. Of an old set generation_config.json goes with it,
// and what a run has saved as its own; other files of a tokenizer stay, they may be somebody's.
inline constexpr std::array<const char*, 9> set_companions{"generation_config.json",
                                                           "tokenizer.json",
                                                           "tokenizer_config.json",
                                                           "special_tokens_map.json",
                                                           "added_tokens.json",
                                                           "vocab.json",
                                                           "merges.txt",
                                                           "tokenizer.model",
                                                           "chat_template.jinja"};

class NewWeights {
 public:
  // Makes `directory` and the folder in it; finishes a save that died there.
  explicit NewWeights(const std::string& directory);
  NewWeights(const NewWeights&) = delete;
  NewWeights& operator=(const NewWeights&) = delete;
  ~NewWeights();  // without commit(): removes what has been written

  // Where the files of the set are to be written; config.json last, when all others are complete.
  const std::string& path() const { return path_; }
  // Says that the run has saved the set; when its weights and companions are written.
  void sign(const std::string& run_id) const;
  void commit();

 private:
  std::string directory_, path_;
};

// What a set with files of these names, saved in `directory`, finds there of some other tokenizer
// and leaves: files of set_companions, which transformers then reads beside the new weights.
std::vector<std::string> companions_that_stay(const std::string& directory,
                                              const std::set<std::string>& names);
// That as a line for people; "" where there are none.
std::string note_of_companions(const std::string& directory, const std::set<std::string>& names);

// Says that the run has saved the weights in `directory`, as they are now. For whom no other
// process writes there.
void sign_weights(const std::string& directory, const std::string& run_id);

// For whom no other process writes into `directory`: moves a whole set that a dead save has left
// there, removes one that is not whole, and files that were being written
// (NAME.tmp-<process>-<number>).
void finish_save(const std::string& directory);

// Where a save that died has left a whole set, for messages; "" where there is none.
std::string unfinished_save(const std::string& directory);

// What has to be removed by hand from `directory` before the rest of an unfinished save is moved
// there by hand: files of the old set that the new one doesn't replace.
std::vector<std::string> left_of_old_set(const std::string& directory);

// The file that shows that there are weights in `directory`: model.safetensors or an index, or a
// set that is on its way; "" where there are none.
std::string weights_in(const std::string& directory);

// Bytes that finish_save() will free: of a set that isn't whole.
std::int64_t unfinished_bytes(const std::string& directory);

// weights_in(), or any other file in `directory` that a new set would replace or remove; "" where
// there is none.
std::string set_file_in(const std::string& directory);

// RequestError where `directory` is, or lies in, the folder that a save makes and removes.
void check_no_save_folder(const std::string& directory);

// RequestError where a new set can't be moved to `directory`: what bears the name of one of its
// files is a directory or no regular file; and as check_no_save_folder().
void check_set_place(const std::string& directory);

// The id of the run that has saved the set which is, or is on its way, in `directory`; "" where
// that isn't a run's, or has been changed since.
std::string run_of_weights(const std::string& directory);

}  // namespace trident
