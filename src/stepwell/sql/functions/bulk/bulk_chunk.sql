-- Work off the next chunk of a bulk operation: of this one, or of the one that has waited longest. A chunk is at most
-- _limit jobs, and no more than the chunk_size of the operation, found within _milliseconds. One transaction changes
-- the jobs and records how far it came, so no job is changed twice, whoever crashes. It is followed by a pause as long
-- as the chunk took, so that other work goes on; the pause is in the row, and therefore holds for all sessions together.
-- _idle: leave an operation alone that another session has worked on in the last so many seconds.
-- Returns the operation and its state; no id: there was nothing to do. next_in is the number of seconds until there may
-- be; null: no operation runs.
-- If the clock of the database was set back since the last chunk, the pause would last until it is as late again. An
-- operation whose last chunk is in the future is therefore due at once.
-- A job whose change fails is counted, and the others go on. So is a job that another transaction keeps locked.
-- A chunk that fails as a whole, such as by a timeout, changes nothing. The error is recorded, and the pause is then
-- four times as long as the chunk took: an operation whose chunks always fail takes a fifth of the time, and the
-- others go on. The next chunk that does not fail clears that error.
-- After a timeout, and when memory runs out, the next chunk has a fifth of the jobs, in the end a single one. If that
-- one does not get through either, right after another chunk that failed, it is counted, and the others go on. Chunks
-- that take long become smaller, too, and quick ones larger.
create or replace function stepwell.bulk_chunk(
  _id uuid default null,
  _idle double precision default 0,
  _limit integer default 500,
  _milliseconds integer default 200,
  out id uuid,
  out state text,
  out next_in double precision
)
language plpgsql volatile security definer
set lock_timeout = '1s'
as $$
declare
  _began timestamptz := clock_timestamp();
  _patience interval := least(greatest(coalesce(_idle, 0), 0), 3600) * interval '1 second';
  _bulk stepwell.bulk;
  _found json;
  _ids uuid[] := '{}';
  _job_id uuid;
  _tried integer := 0;
  _failed integer := 0;
  _error text;
  _became jsonb := '{}';
  _looked_to uuid;
  _size integer;
begin
  select b.* into _bulk
  from stepwell.bulk b
  where b.state = 'running' and (_id is null or b.id = _id)
    -- Not _began: another session may have ended a chunk since.
    and (b.next_at <= _began - _patience or coalesce(b.worked_at, b.next_at) > clock_timestamp())
  order by coalesce(b.worked_at, b.next_at) > clock_timestamp() desc, b.next_at
  limit 1
  for update skip locked;
  if not found then
    -- One that is due is being worked on by another session.
    next_in := (
      select greatest(min(
        case when coalesce(b.worked_at, b.next_at) <= clock_timestamp() then
          extract(epoch from b.next_at + _patience - _began)
        else 0 end
      ), 0.05)
      from stepwell.bulk b
      where b.state = 'running' and (_id is null or b.id = _id)
      having count(*) > 0
    );
    state := (select b.state from stepwell.bulk b where b.id = _id);
    return;
  end if;
  _size := least(greatest(coalesce(_limit, 500), 1), _bulk.chunk_size);
  begin
    begin
      _found := stepwell.bulk_matches(
        _bulk.filter,
        array(select s.name::stepwell.state from jsonb_array_elements_text(_bulk.filter -> 'states') as s (name)),
        _bulk.as_of, _bulk.looked_to, _size, least(greatest(coalesce(_milliseconds, 200), 1), 2000),
        _bulk.act = 'retry'
      );
    exception
      when transaction_rollback or insufficient_resources or operator_intervention or read_only_sql_transaction
        or lock_not_available
      then
        raise;
      when others then
        -- Otherwise it would be the next one for ever, and all other operations would wait behind it.
        update stepwell.bulk b
        set state = 'stopped', finished_at = stepwell.now(), worked_at = clock_timestamp(),
          error = left(format('the search for the next jobs failed: %s', sqlerrm), 1000)
        where b.id = _bulk.id
        returning b.id, b.state, 0.0 into id, state, next_in;
        return;
    end;
    _ids := array(
      select i.id::uuid from json_array_elements_text(_found -> 'ids') with ordinality as i (id, n) order by i.n
    );
    _looked_to := (_found ->> 'looked_to')::uuid;
    if cardinality(_ids) > 0 then
      begin
        _became := stepwell.bulk_change(_bulk.act, _bulk.options, _ids);
        _tried := cardinality(_ids);
      exception
        when transaction_rollback or insufficient_resources or operator_intervention or read_only_sql_transaction then
          raise;
        when others then
          -- One by one, until time is up; the next chunk goes on from there.
          foreach _job_id in array _ids loop
            begin
              perform set_config('lock_timeout', '100ms', true);
              _became := stepwell.add_counts(_became, stepwell.bulk_change(_bulk.act, _bulk.options, array[_job_id]));
            exception
              when transaction_rollback or insufficient_resources or operator_intervention
                or read_only_sql_transaction
              then
                raise;
              when others then
                _failed := _failed + 1;
                _error := left(format('job %s: %s', _job_id, sqlerrm), 1000);
            end;
            _tried := _tried + 1;
            if clock_timestamp() > _began + interval '3 seconds' and _tried < cardinality(_ids) then
              _looked_to := _job_id;
              exit;
            end if;
          end loop;
      end;
    end if;
    update stepwell.bulk b
    set state = case when _looked_to is null then 'done' else 'running' end,
      finished_at = case when _looked_to is null then stepwell.now() end,
      looked_to = _looked_to, looked = b.looked + (_found ->> 'looked')::integer,
      done = b.done + c.changed, skipped = b.skipped + _tried - _failed - c.changed, failed = b.failed + _failed,
      became = stepwell.add_counts(b.became, _became),
      error = coalesce(_error, case when not starts_with(b.error, 'a chunk failed: ') then b.error end),
      chunk_size = case
        when _tried > 0 and clock_timestamp() > _began + interval '2 seconds' then greatest(least(b.chunk_size, _tried) / 2, 1)
        when clock_timestamp() < _began + interval '500 ms' and _tried >= _size then least(b.chunk_size * 2, 500)
        else b.chunk_size
      end,
      worked_at = clock_timestamp(), next_at = clock_timestamp() + (clock_timestamp() - _began)
    from (select coalesce(sum(e.value::bigint), 0) as changed from jsonb_each_text(_became) e) c
    where b.id = _bulk.id
    returning b.id, b.state, extract(epoch from clock_timestamp() - _began) into id, state, next_in;
    update stepwell.audit a set count = (select b.done from stepwell.bulk b where b.id = _bulk.id)
    where a.bulk = _bulk.id;
  exception
    when query_canceled or transaction_rollback or insufficient_resources or lock_not_available then
      -- Once is not enough: somebody may have interrupted it.
      _failed := (
        sqlstate in ('57014', '53200') and cardinality(_ids) = 1
        and coalesce(starts_with(_bulk.error, 'a chunk failed: '), false)
      )::integer;
      update stepwell.bulk b
      set error = left(
          case _failed when 1 then format('job %s: ', _ids[1]) else 'a chunk failed: ' end || sqlerrm, 1000
        ),
        failed = b.failed + _failed,
        looked = b.looked + case _failed when 1 then (_found ->> 'looked')::integer else 0 end,
        looked_to = case _failed when 1 then _ids[1] else b.looked_to end,
        chunk_size = case
          when sqlstate in ('57014', '53200') and cardinality(_ids) > 0 then greatest(cardinality(_ids) / 5, 1)
          else b.chunk_size
        end,
        worked_at = clock_timestamp(),
        next_at = clock_timestamp() + greatest(4 * (clock_timestamp() - _began), interval '1 second')
      where b.id = _bulk.id
      returning b.id, b.state, extract(epoch from b.next_at - clock_timestamp()) into id, state, next_in;
  end;
end
$$;
