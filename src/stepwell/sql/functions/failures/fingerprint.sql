-- What tells failures of one group from those of another: the task, the type of the error, and the function of the
-- user's code that raised it, null if that is not known. No line numbers, which change with each deploy.
create or replace function stepwell.fingerprint(_task text, _type text, _frame text) returns uuid
language sql immutable
return encode(
  substr(sha256(convert_to(concat_ws(e'\x1f', _task, _type, coalesce(_frame, '')), 'UTF8')), 1, 16), 'hex'
)::uuid;
