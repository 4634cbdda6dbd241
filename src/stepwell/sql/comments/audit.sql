comment on table stepwell.audit is
  'Acts of people. Rows are only added, and pruned after a year; the count of a bulk operation grows with its chunks.';
comment on column stepwell.audit.id is 'The order of the acts.';
comment on column stepwell.audit.at is 'When it was done.';
comment on column stepwell.audit.who is 'The person, as the dashboard, the command line or the program named them.';
comment on column stepwell.audit.via is 'web, cli or python.';
comment on column stepwell.audit.role is 'The role that was connected to the database.';
comment on column stepwell.audit.act is 'What was done, in a word or two.';
comment on column stepwell.audit.target is 'What it was done to: a thing by its name, or the filter of a bulk operation.';
comment on column stepwell.audit.count is 'How many jobs or other things were changed.';
comment on column stepwell.audit.bulk is 'Shared by the chunks of a bulk operation; null: it had none.';
comment on index stepwell.audit_bulk is 'Finds the row that the next chunk of a bulk operation is added to.';
