comment on schema stepwell is 'Stepwell: background jobs and durable steps. Created and changed by "stepwell migrate".';

comment on table stepwell.migration is 'The migrations applied. The highest version is the version of the schema.';
comment on column stepwell.migration.version is 'The number at the beginning of the file name.';
comment on column stepwell.migration.name is 'The file name without its suffix.';
comment on column stepwell.migration.applied_at is 'When the migration was applied.';
comment on column stepwell.migration.compatible_from is
  'The oldest version whose code works with the schema after this migration; null: only code that has this migration.';

comment on table stepwell.clock is 'For tests: stepwell.now() returns the time in its row. Empty in production.';

comment on table stepwell.size_limit is
  'The size limits, in bytes, set by the owner of the schema with stepwell.set_size_limit or "stepwell sizes set".';
comment on column stepwell.size_limit.name is
  'args and metadata of a job; event and signal: their values; result; step: the value or error of a step; progress; '
  'job: everything that a worker receives with one job (args, metadata, saved steps).';
comment on column stepwell.size_limit.bytes is 'The limit, at least 65536.';
