-- Fire schedules that are due, each by itself: one that cannot be fired now does not hold up the others.
-- _dues[k] and _versions[k] say what the caller saw of _ids[k]; if somebody else has fired or changed it since, nothing is
-- done. (_tick_ids, _tick_ats) are the ticks that were reckoned, _nexts[k] the one to come. Returns how many jobs were
-- enqueued, and which schedules could not be fired, and why.
create or replace function stepwell.tick(
  _ids uuid[],
  _versions integer[],
  _dues timestamptz[],
  _nexts timestamptz[],
  _tick_ids uuid[],
  _tick_ats timestamptz[],
  out enqueued integer,
  out left_ids uuid[],
  out left_why text[]
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '250ms'
as $$
declare
  _k integer;
begin
  enqueued := 0;
  left_ids := '{}';
  left_why := '{}';
  for _k in select u.k from unnest(_ids) with ordinality as u (id, k) order by u.id loop
    begin
      enqueued := enqueued + stepwell.tick_one(
        _ids[_k], _versions[_k], _dues[_k], _nexts[_k],
        array(select t.at from unnest(_tick_ids, _tick_ats) as t (id, at) where t.id = _ids[_k] order by t.at)
      );
    exception when others then
      left_ids := left_ids || _ids[_k];
      left_why := left_why || sqlerrm;
    end;
  end loop;
end
$$;
