-- A page of the logs of a job, oldest line first: {"lines", "first", "last"}; first and last are the numbers of the
-- first and the last line that are kept. It has at most _limit lines of at least _level: the newest before the line
-- _before, or the oldest after the line _after. Null: there is no such job.
create or replace function stepwell.job_logs(
  _id uuid,
  _level integer default 0,
  _before integer default null,
  _after integer default null,
  _limit integer default 100
) returns json
language plpgsql stable security definer
as $$
declare
  _most integer := least(greatest(coalesce(_limit, 100), 1), 1000);
  _lines json;
begin
  if not exists (select from stepwell.jobs j where j.id = _id) then
    return null;
  end if;
  -- A job has little more than a thousand lines, so the level needs no index.
  if _after is not null then
    select json_agg(l.line order by l.n) into _lines
    from (
      select r.line as n, json_build_object(
        'line', r.line, 'attempt', r.attempt, 'at', r.at, 'level', r.level, 'logger', r.logger, 'message', r.message
      ) as line
      from stepwell.run_log r
      where r.job_id = _id and r.line > _after and r.level >= coalesce(_level, 0)
      order by r.line
      limit _most
    ) l;
  else
    select json_agg(l.line order by l.n) into _lines
    from (
      select r.line as n, json_build_object(
        'line', r.line, 'attempt', r.attempt, 'at', r.at, 'level', r.level, 'logger', r.logger, 'message', r.message
      ) as line
      from stepwell.run_log r
      where r.job_id = _id and r.line < coalesce(_before, 2147483647) and r.level >= coalesce(_level, 0)
      order by r.line desc
      limit _most
    ) l;
  end if;
  return json_build_object(
    'lines', coalesce(_lines, '[]'),
    'first', (select r.line from stepwell.run_log r where r.job_id = _id order by r.line limit 1),
    'last', (select r.line from stepwell.run_log r where r.job_id = _id order by r.line desc limit 1)
  );
end
$$;
